/* Cuts records at the edges of windows, as windows.py says. Loaded by ingest/quick.py. */
#include <stdint.h>

/* What of a total has passed after a part of a span, rounded down. */
static inline int64_t passed(int64_t total, int64_t elapsed, int64_t span) {
  int64_t product;
  if (!__builtin_mul_overflow(total, elapsed, &product)) return product / span;
  return (int64_t)((__int128)total * elapsed / span);
}

/* Cut records. All columns begin with the records as they are; the pieces that begin at edges come behind them.
 *
 * split, edges: which of the records have edges in them, and how many each.
 * record, window, first, last, bytes, packets: of each piece, with room for all.
 */
void cut(const int64_t *split, const int64_t *edges, int64_t count, int64_t records, int64_t window_ms,
         int64_t *record, int64_t *window, int64_t *first, int64_t *last, int64_t *bytes, int64_t *packets) {
  int64_t piece = records;
  for (int64_t i = 0; i < count; i++) {
    int64_t own = split[i], before = own, begin = first[own], end = last[own];
    int64_t volume = bytes[own], amount = packets[own], volume_before = 0, amount_before = 0;
    for (int64_t next = window[own] + 1; next <= window[own] + edges[i]; next++, piece++) {
      int64_t edge = next * window_ms;
      int64_t volume_passed = passed(volume, edge - begin, end - begin);
      int64_t amount_passed = passed(amount, edge - begin, end - begin);
      bytes[before] = volume_passed - volume_before, packets[before] = amount_passed - amount_before;
      last[before] = edge;
      record[piece] = own, window[piece] = next, first[piece] = edge;
      before = piece, volume_before = volume_passed, amount_before = amount_passed;
    }
    bytes[before] = volume - volume_before, packets[before] = amount - amount_before;
    last[before] = end;
  }
}
