/* CRC-32C: by the processor's instruction, or eight tables. */
#include "crc32c.h"

static uint32_t crc_tables[8][256];

static void make_crc_tables(void)
{
    int i, j;
    for (i = 0; i < 256; i++) {
        uint32_t crc = (uint32_t)i;
        for (j = 0; j < 8; j++)
            crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
        crc_tables[0][i] = crc;
    }
    for (i = 0; i < 256; i++)
        for (j = 1; j < 8; j++)
            crc_tables[j][i] = crc_tables[j - 1][i] >> 8 ^ crc_tables[0][crc_tables[j - 1][i] & 255];
}

static uint32_t crc_by_tables(const uint8_t *p, size_t size)
{
    uint32_t crc = ~0u;
    for (; size >= 8; size -= 8, p += 8) {
        uint64_t word = little64(p) ^ crc;
        crc = crc_tables[7][word & 255] ^ crc_tables[6][word >> 8 & 255] ^ crc_tables[5][word >> 16 & 255] ^
              crc_tables[4][word >> 24 & 255] ^ crc_tables[3][word >> 32 & 255] ^ crc_tables[2][word >> 40 & 255] ^
              crc_tables[1][word >> 48 & 255] ^ crc_tables[0][word >> 56];
    }
    for (; size; size--, p++)
        crc = crc >> 8 ^ crc_tables[0][(crc ^ *p) & 255];
    return ~crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc_by_instruction(const uint8_t *p, size_t size)
{
    uint64_t crc = ~0u;
    for (; size >= 8; size -= 8, p += 8)
        crc = __builtin_ia32_crc32di(crc, little64(p));
    for (; size; size--, p++)
        crc = __builtin_ia32_crc32qi((uint32_t)crc, *p);
    return ~(uint32_t)crc;
}
#endif

uint32_t (*crc32c)(const uint8_t *, size_t) = crc_by_tables;

void choose_crc(void)
{
    make_crc_tables();
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("sse4.2"))
        crc32c = crc_by_instruction;
#endif
}
