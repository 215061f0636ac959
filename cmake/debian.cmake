# What Debian's policy wants of a package's tree: compressed man pages, a copyright file, a changelog, zsh's folder for completion.
# cpack runs this before it packs ${CPACK_TEMPORARY_INSTALL_DIRECTORY}.
set(root ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr)
set(documents ${root}/share/doc/protrain)
file(GLOB pages ${root}/share/man/man*/*.[13])
foreach(page ${pages})
  execute_process(COMMAND gzip -9nf ${page} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
file(RENAME ${root}/share/zsh/site-functions ${root}/share/zsh/vendor-completions)

file(READ ${CMAKE_CURRENT_LIST_DIR}/../LICENSE license)
string(REGEX REPLACE "^MIT License\n\nCopyright \\(c\\) ([^\n]*)\n\n" "" license "${license}")
set(holders ${CMAKE_MATCH_1})
string(STRIP "${license}" license)
string(REPLACE "\n\n" "\n.\n" license "${license}")
string(REPLACE "\n" "\n " license "${license}")
file(WRITE ${documents}/copyright "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: ProTrain

Files: *
Copyright: ${holders}
License: Expat
 ${license}
")
file(WRITE ${documents}/changelog.Debian "protrain (${CPACK_PACKAGE_VERSION}-1) unstable; urgency=low

  * Built from the source tree by cpack.

 -- ${CPACK_PACKAGE_CONTACT}  Sun, 29 Nov 2026 00:00:00 +0000
")
execute_process(COMMAND gzip -9nf ${documents}/changelog.Debian COMMAND_ERROR_IS_FATAL ANY)
