#pragma once
#include <stddef.h>

#include "numbers.h"

extern uint32_t (*crc32c)(const uint8_t *, size_t);
void choose_crc(void);
