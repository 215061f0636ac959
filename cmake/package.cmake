# DEBFULLNAME=... DEBEMAIL=... cmake -DCMAKE_INSTALL_PREFIX=/usr ..., then cpack in the build folder make a Debian package, with man pages, completion
# and the library; cmake/debian.cmake finishes its tree.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME protrain)
set(CPACK_PACKAGE_CONTACT "The ProTrain authors <protrain@example.org>")
if(DEFINED ENV{DEBFULLNAME} AND DEFINED ENV{DEBEMAIL}) # who builds it is its maintainer
  set(CPACK_PACKAGE_CONTACT "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>")
endif()
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "train language models on the hardware you have")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "ProTrain trains and fine-tunes Hugging Face models in whatever memory there
is: it plans where every byte lives, on a GPU, in RAM or on a disk, and gives
the same bits under every plan. It also plans, evaluates, generates, merges
adapters and exports, and has a library for C.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/debian.cmake)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libmuparser2v5")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/cmake/triggers)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
include(CPack)
