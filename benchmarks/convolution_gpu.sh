#!/bin/sh
# What the convolutions' kernels are worth on a GPU, in order: sh benchmarks/convolution_gpu.sh [step ...]; results in $OUT as JSON.
# Every step ends within 100 s and prints as it goes; what a step has compiled is kept for the next.
cd "$(dirname "$0")/.." || exit 1
export TRITON_CACHE_DIR="${TRITON_CACHE_DIR:-/tmp/triton-convolutions}" PYTHONPATH="$PWD/src" PYTHONUNBUFFERED=1
out="${OUT:-/tmp/convolutions}"
mkdir -p "$out"
python() { timeout 100 python3 -W ignore "$@" 2>&1; }
tiles() { test -s "$out/tiles.json" && echo "--tiles $out/tiles.json"; }
net() { # shellcheck disable=SC2046
    python benchmarks/convolutions.py --device cuda --rounds 3 --profile --nets "$1" --runs "$2" $(tiles) --json "$out/$1-$2.json"
}
for step in ${*:-check tune net-32-64 net-551322 net-resnet20 one models whole}; do
    echo "== $step"
    case $step in
    check) python benchmarks/convolution_kernels.py cuda ;;
    tune) python benchmarks/convolution_kernels.py cuda --tune R1 B2 A2 R3 B4 R2 B3 A1 B1 --json "$out/tiles.json" ;;
    net-*) net "${step#net-}" 40 ;;
    one) net resnet20 8 ;;
    models) python benchmarks/random_models.py --device cuda --models 200 ;;
    whole) python benchmarks/gpu_checks.py ;;
    esac
done
