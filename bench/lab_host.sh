#!/bin/sh
# lab_host.sh HOST COMMAND...: what mpirun and `rubato cluster up` start with, on the laboratory's host of
# that address. A name of its own lets Open MPI tell hosts apart that are namespaces of one machine.
# LAB_NET: net.sh; LAB_NAME: the laboratory
host=${1##*.}
shift
exec "$LAB_NET" in "$LAB_NAME" "$host" unshare --uts sh -c "hostname lab$host; $*"
