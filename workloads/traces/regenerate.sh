#!/usr/bin/env bash
# Makes chakra_pb2.py and chakra_pb2.pyi from chakra.proto, with the Python that is named or python3:
#
#     workloads/traces/regenerate.sh .venv/bin/python
#
# The generator's version decides which protobuf the code loads on. 1.76.0 makes code for protobuf 6.31.1, and so for all
# that OR-tools allows; a newer one than 1.81 makes code that refuses OR-tools' protobuf. It goes into a throw-away
# environment, because it would bring a protobuf of its own.
set -euo pipefail
python="$(command -v "${1:-python3}")"
[[ $python = /* ]] || python="$PWD/$python"
cd "$(dirname "$0")"
tools="$(mktemp -d)"
trap 'rm -rf "$tools"' EXIT
"$python" -m venv "$tools/venv"
"$tools/venv/bin/python" -m pip install --quiet --disable-pip-version-check 'grpcio-tools==1.76.0' 'setuptools<81'
# Built under the folder that the name in the registry of descriptors tells, so that it cannot meet another chakra.proto.
mkdir -p "$tools/in/archplace/workloads/traces" "$tools/out"
cp chakra.proto "$tools/in/archplace/workloads/traces/"
"$tools/venv/bin/python" -m grpc_tools.protoc -I "$tools/in" --python_out="$tools/out" --pyi_out="$tools/out" \
  archplace/workloads/traces/chakra.proto
for file in chakra_pb2.py chakra_pb2.pyi; do
  { echo "# ruff: noqa"; echo "# fmt: off"; sed 's/_Mapping\]/_Mapping[str, object]]/g' "$tools/out/archplace/workloads/traces/$file"; } > "$file"
done
