#!/bin/sh
# A shared library of one C file that includes no headers but ours: compile.sh FILE.c FILE.so
set -eu
source=$1 made=$2
# Slurm takes plugins that were made for its own version alone: SLURM is 0x180b05 for 24.11.5
version=$(slurmctld -V | awk '{ split($2, part, "."); print part[1] * 65536 + part[2] * 256 + part[3] }')
tcc -Wall -Werror -shared -nostdlib "-DSLURM=$version" -o "$made" "$source"
# tcc says nothing of the stack, and of a library that says nothing the loader believes that it has to be
# executable: it makes it so for the whole program, or refuses to load it. The table of segments (ELF, 64
# bits) gets a PT_GNU_STACK, readable and writable, and a new place at the end of the file.
python3 - "$made" <<'END'
import struct
import sys

with open(sys.argv[1], "r+b") as file:
    data = bytearray(file.read())
    (at,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    table = data[at : at + size * count] + struct.pack("<IIQQQQQQ", 0x6474E551, 6, 0, 0, 0, 0, 0, 16)
    data += bytes(-len(data) % 8)
    struct.pack_into("<Q", data, 32, len(data))
    struct.pack_into("<H", data, 56, count + 1)
    file.seek(0)
    file.write(data + table)
END
