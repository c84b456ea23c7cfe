/* Numbers the different keys of rows, and folds the rows' values by these numbers: what grouped.py does in many passes of
 * numpy, of which those that fold hold the interpreter. Loaded by ingest/quick.py.
 */
#include <stdint.h>
#include <stdlib.h>

enum { NO_MEMORY = -1, FIRST_BITS = 14 };

/* Where different keys are found: one more than their places among these; 0 is free. */
struct table {
  int32_t *slots;
  unsigned bits;
  uint64_t seed; /* a number that nobody foresees: keys hold what senders choose */
};

/* Return the slot of a key, or the free one that it may have. */
static inline int32_t *slot_of(const struct table *table, const int64_t *different, int64_t key) {
  /* Mixed twice: once may put numbers in a row side by side. The constants are splitmix64's. */
  uint64_t mixed = (uint64_t)key ^ table->seed;
  mixed = (mixed ^ mixed >> 32) * UINT64_C(0xbf58476d1ce4e5b9);
  mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
  uint64_t mask = (UINT64_C(1) << table->bits) - 1, place = mixed >> (64 - table->bits);
  while (table->slots[place] && different[table->slots[place] - 1] != key) place = (place + 1) & mask;
  return &table->slots[place];
}

static int make(struct table *table, unsigned bits, const int64_t *different, int64_t count) {
  free(table->slots);
  table->bits = bits;
  table->slots = calloc(UINT64_C(1) << bits, sizeof *table->slots);
  for (int64_t i = 0; table->slots && i < count; i++) *slot_of(table, different, different[i]) = (int32_t)i + 1;
  return table->slots != NULL;
}

/* Number keys in the order in which they come first.
 *
 * keys, numbers: of each row, fewer than 2^31. different: room for as many keys as there are rows.
 * Returns how many different ones there are; NO_MEMORY without memory.
 */
int64_t number_keys(const int64_t *keys, int64_t rows, uint64_t seed, int64_t *numbers, int64_t *different) {
  struct table table = {NULL, 0, seed};
  int64_t count = 0;
  if (rows > INT32_MAX || !make(&table, FIRST_BITS, different, 0)) return NO_MEMORY;
  for (int64_t row = 0; row < rows; row++) {
    int32_t *slot = slot_of(&table, different, keys[row]);
    if (!*slot) {
      different[count++] = keys[row];
      *slot = (int32_t)count;
      if ((uint64_t)count << 1 >> table.bits && !make(&table, table.bits + 2, different, count)) return NO_MEMORY;
      numbers[row] = count - 1;
    } else {
      numbers[row] = *slot - 1;
    }
  }
  free(table.slots);
  return count;
}

/* Add each row's value to the result at its place. */
void add_up(const int64_t *places, const int64_t *values, int64_t rows, int64_t *result) {
  for (int64_t row = 0; row < rows; row++) {
    uint64_t before = (uint64_t)result[places[row]];
    result[places[row]] = (int64_t)(before + (uint64_t)values[row]);
  }
}

/* Written in any case: no processor foresees which row has less. */
void keep_least(const int64_t *places, const int64_t *values, int64_t rows, int64_t *result) {
  for (int64_t row = 0; row < rows; row++) {
    int64_t before = result[places[row]], value = values[row];
    result[places[row]] = value < before ? value : before;
  }
}

void keep_largest(const int64_t *places, const int64_t *values, int64_t rows, int64_t *result) {
  for (int64_t row = 0; row < rows; row++) {
    int64_t before = result[places[row]], value = values[row];
    result[places[row]] = value > before ? value : before;
  }
}
