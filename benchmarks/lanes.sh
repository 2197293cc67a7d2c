#!/bin/sh
# Several works on one GPU at once: sh benchmarks/lanes.sh SECONDS 'command' ['command' ...]; their output goes to $OUT/lane-0.log on.
# By NVIDIA's multi-process service their kernels run side by side: one that compiles, or whose kernels are small, costs the others
# next to nothing. All are ended after SECONDS; a fault of one in the GPU's memory may end the others too, so let them keep what is done.
limit="$1"
shift
out="${OUT:-/tmp/lanes}"
mkdir -p "$out" /tmp/lanes-mps
export CUDA_MPS_PIPE_DIRECTORY=/tmp/lanes-mps CUDA_MPS_LOG_DIRECTORY=/tmp/lanes-mps PYTHONUNBUFFERED=1
if command -v nvidia-cuda-mps-control > /dev/null; then
    pgrep -f nvidia-cuda-mps-control > /dev/null || nvidia-cuda-mps-control -d
else
    echo "lanes: no nvidia-cuda-mps-control here: the works take turns" >&2
fi
lane=0
for work in "$@"; do
    timeout "$limit" sh -c "$work" > "$out/lane-$lane.log" 2>&1 &
    lane=$((lane + 1))
done
wait
tail -n 3 "$out"/lane-*.log
