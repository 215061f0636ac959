# The Python package as it is built: test_python.sh BUILD
#
# A model from random weights, trained by the program and by the package on the same records, which the package gets as dicts; needs nothing
# but python3 itself.
set -eu
build=$1
command -v python3 >/dev/null && python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' || exit 77
[ -e "$build/python/protrain/_api.py" ] || { echo "FAILED: the target python_package is not built"; exit 1; }
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

mkdir "$root/model"
"$build/examples/stories" 40 >"$root/stories.jsonl"
"$build/examples/make_tokenizer" 300 "$root/stories.jsonl" >"$root/model/tokenizer.json"
cp "$(dirname "$0")/../../examples/stories_config.json" "$root/config.json"
sed -e 's/"vocab_size": [0-9]*/"vocab_size": 300/' -e 's/"hidden_size": [0-9]*/"hidden_size": 32/' \
    -e 's/"intermediate_size": [0-9]*/"intermediate_size": 64/' -e 's/"num_hidden_layers": [0-9]*/"num_hidden_layers": 2/' \
    "$root/config.json" >"$root/model/config.json"
PROTRAIN_LIBRARY=$build/libprotrain.so.0 PYTHONPATH=$build/python python3 "$(dirname "$0")/python_package.py" "$build/protrain" "$root"
