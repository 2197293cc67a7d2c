#!/bin/sh
# The records on a GPU machine without a network: sh benchmarks/records_gpu.sh STEP [STEP ...]; lines in $OUT/records.jsonl, to be added
# to results/records.jsonl, whose cells are not made again. `bring` keeps what it finds in carry/ (docs/notes/records.md) outside of the
# working tree, so that it may come in several parcels. MORE=--list says what a step would do. A step ends within SECONDS_EACH.
cd "$(dirname "$0")/.." || exit 1
kept="${KEPT:-/tmp/records}" seconds="${SECONDS_EACH:-540}" out="${OUT:-/tmp/records/out}" python="${PYTHON:-python3}"
export HONESTDP_DATA="$kept/data" PYTHONPATH="$PWD/src:$kept/site" PYTHONUNBUFFERED=1 OMP_NUM_THREADS=2 OUT="$out"
export TRITON_CACHE_DIR="${TRITON_CACHE_DIR:-/tmp/triton-records}"
mkdir -p "$out" "$kept/data/cifar10" "$kept/parts" "$kept/site"
make="$python -W ignore benchmarks/records.py --device cuda --out $out/records.jsonl --also results/records.jsonl --seconds $seconds $MORE"
lanes() { # works side by side; with MORE=--list one after another, on any machine
    case $MORE in
    *--list*) for work in "$@"; do sh -c "$work"; done ;;
    *) sh benchmarks/lanes.sh $((seconds + 30)) "$@" ;;
    esac
}
photographs="--data cifar10 --models" digits="--data mnist --all-models --models" clothes="--data fashion-mnist --all-models --models"
others="--data mnist fashion-mnist --all-models --models"
published() { # all published models, a lane each: EPSILONS KIND
    lanes "$make $photographs published-cnn --epsilon $1 --ways '$2, centred, scaled'" \
        "$make $photographs linear --epsilon $1 --ways '$2, centred, mirrored, scaled'" \
        "$make $digits published-cnn --epsilon $1 --ways '$2, centred'" "$make $digits linear --epsilon $1 --ways '$2, centred'" \
        "$make $clothes published-cnn --epsilon $1 --ways '$2, centred'" "$make $clothes linear --epsilon $1 --ways '$2, centred'"
}
ours() { # networks of ours: KIND
    lanes "$make $photographs mirror-cnn --epsilon 3 --ways '$1, centred, scaled'" "$make $digits cnn --epsilon 3 --ways '$1, centred'"
}
test $# -gt 0 || { sed -n 2,4p "$0" && exit 2; }
for step in "$@"; do
    echo "== $step"
    case $step in
    bring)
        cp carry/cifar/part-* "$kept/parts/" 2> /dev/null
        cp -r carry/data/* "$kept/data/" 2> /dev/null
        for parcel in carry/wheels/*.tar.xz; do
            test -s "$parcel" && "$python" -W ignore -m tarfile -e "$parcel" "$kept/site"
        done
        if test -s "$kept/parts/part-0" && test -s "$kept/parts/part-1" && test -s "$kept/parts/part-2"; then
            cat "$kept"/parts/part-? > "$kept/data/cifar10/cifar10_webp.npz"
            echo "180d3c8dc8db84fdbabd73238e5ee8c363f881ee5a0de72cd6191ce07a4552f5  $kept/data/cifar10/cifar10_webp.npz" | sha256sum -c
        fi
        ls "$kept"/*
        ;;
    check)
        for module in torch numpy PIL scipy mpmath safetensors absl attr dp_accounting opendp.mod cryptography.fernet; do
            "$python" -W ignore -c "import $module as m; print('$module', getattr(m, '__version__', ''), m.__file__)" 2>&1 | tail -n 1
        done
        ;;
    # By value: searches, pilots, mirror-searches, mirror-pilots, echo, less, less-searches, less-pilots, less-echo.
    searches) published 3 'search echo' ;; # all published models at epsilon 3
    pilots) published 3 'pilot echo' ;;
    mirror-searches) ours 'search echo' ;; # networks of ours at epsilon 3
    mirror-pilots) ours 'pilot echo' ;;
    echo) published 3 'untuned echo' ;; # by today's Echo what an earlier one has made
    less) # the published network of CIFAR-10 at epsilon 2, 1 and .5
        lanes "$make $photographs published-cnn --epsilon 2 1 0.5 --ways 'untuned, centred, scaled'" \
            "$make $photographs published-cnn --epsilon 2 1 0.5 --ways 'untuned echo, centred, scaled'"
        ;;
    less-searches) published '2 1 0.5' 'search echo' ;;
    less-pilots) published '2 1 0.5' 'pilot echo' ;;
    less-echo) published '2 1 0.5' 'untuned echo' ;;
    published) # the published networks at epsilon 3, and those of MNIST and Fashion-MNIST at every epsilon
        lanes "$make $photographs published-cnn --epsilon 3 --ways 'untuned, centred, scaled'" \
            "$make $photographs published-cnn --epsilon 3 --ways 'untuned echo, centred, scaled'" \
            "$make $others published-cnn --ways 'untuned, centred' 'untuned echo, centred'"
        ;;
    mirror)
        lanes "$make $photographs mirror-cnn --epsilon 3 --ways 'untuned, centred, scaled'" \
            "$make $photographs mirror-cnn --epsilon 3 --ways 'untuned echo, centred, scaled'"
        ;;
    less-mirror)
        lanes "$make $photographs mirror-cnn --epsilon 2 1 0.5 --ways 'untuned, centred, scaled'" \
            "$make $photographs mirror-cnn --epsilon 2 1 0.5 --ways 'untuned echo, centred, scaled'"
        ;;
    *) echo "records_gpu: error: no step $step" >&2 && exit 2 ;;
    esac
done
