#!/bin/sh
# What the convolutions' kernels are worth on a GPU, in order: sh benchmarks/convolution_gpu.sh [step ...]; results in $OUT as JSON.
# Every step ends within 100 s and prints as it goes; what a step has compiled is kept for the next.
cd "$(dirname "$0")/.." || exit 1
export TRITON_CACHE_DIR="${TRITON_CACHE_DIR:-/tmp/triton-convolutions}" PYTHONPATH="$PWD/src" PYTHONUNBUFFERED=1
out="${OUT:-/tmp/convolutions}"
mkdir -p "$out"
py() { timeout 100 "${PYTHON:-python}" -W ignore "$@" 2>&1; }
tiles() { test -s "$out/tiles.json" && echo "--tiles $out/tiles.json"; }
net() { # shellcheck disable=SC2046
    py benchmarks/convolutions.py --device cuda --rounds 3 --profile --nets "$1" --runs "$2" $(tiles) --json "$out/$1-$2.json"
}
for step in ${*:-check tune net-32-64 net-551322 net-resnet20 one models-0 models-100 whole}; do
    echo "== $step"
    case $step in
    check)
        for share in 0 1 2 3 4 5 6 7; do py benchmarks/convolution_kernels.py cuda --share $share/8 & done
        wait
        ;;
    tune) py benchmarks/convolution_kernels.py cuda --tune R1 B2 A2 R3 B4 R2 B3 A1 B1 --json "$out/tiles.json" ;;
    net-*) net "${step#net-}" 40 ;;
    one) net resnet20 8 ;;
    models-*) py benchmarks/random_models.py --device cuda --models 100 --first "${step#models-}" ;;
    whole) py benchmarks/gpu_checks.py ;;
    esac
done
