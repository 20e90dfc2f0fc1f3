# SPDX-License-Identifier: Apache-2.0
# cmake -DIN=file -DOUT=file.c -DNAME=name -P embed.cmake: writes the bytes of a file as a C array NAME, and their
# number NAME_len.
file(READ ${IN} hex HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
string(REPEAT "." 80 line) # 16 bytes
string(REGEX REPLACE "(${line})" "\\1\n" bytes "${bytes}")
file(WRITE ${OUT} "#include <stddef.h>
extern const unsigned char ${NAME}[];
extern const size_t ${NAME}_len;
const unsigned char ${NAME}[] = {
${bytes}
};
const size_t ${NAME}_len = sizeof ${NAME};
")
