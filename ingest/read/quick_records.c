/* Reads what pmacct prints of records: lines of CSV, and of JSON, whose values are numbers, epoch times and addresses.
 *
 * It takes good lines only. Of a text with any other it takes nothing: `readers_csv` and `readers_json` then judge each
 * line by itself. What it takes it reads as they do (tests/ingest/test_quick_records.py). Loaded by quick_records.py.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "made for processors that have a number's lowest byte first: it reads eight digits at once"
#endif

enum { SKIPPED, NUMBER, TIME, WORD };          /* kinds of columns */
enum { REFUSED = -1 };                          /* the answer to an odd text */
enum { MOST_DIGITS = 19, FRACTION_DIGITS = 6 }; /* of a number of 64 bits, of microseconds */
enum { LONGEST_WORD = 64, ROOM = 128 };         /* bytes that are looked at behind where a text may end */

#define NO_TIME INT64_MIN /* a time of 0, which is pmacct's for none */
#define END_OF_TIME INT64_C(253402300800) /* epoch seconds of the year 10000, as in readers_values */

/* Different words of a text, in the order in which they come first; `numbers` are looked up by a word's hash. */
struct words {
  uint8_t *text;     /* the words, a newline after each; as large as the text that is read */
  uint64_t size;     /* of them */
  uint64_t count;
  const char *prefix; /* left out where a word begins with it */
  uint64_t prefix_size;
  uint64_t seed; /* of the hash, which whoever forges addresses must not foresee */
  /* Ours. */
  struct entry {
    uint64_t hash, place;  /* its first byte in `text` */
    uint32_t size, number; /* its number is one more than its place among the words: 0 is a free entry */
  } *entries;
  uint64_t mask;
};

struct column {
  int32_t kind, width; /* bytes of a value in `values`: 2, 4 or 8 */
  int64_t most;        /* of a NUMBER */
  void *values;
  struct words *words; /* of a WORD; its values are their numbers, 4 bytes each */
  const char *key;     /* JSON's, with quotation marks and colon */
  uint32_t key_size, is_quoted;
};

struct text {
  const char *at, *end;
};

struct lines {
  struct column *columns;
  int32_t count;
  char separator;    /* of CSV */
  int64_t rows;      /* for which there is room */
  uint64_t present;  /* JSON: which columns there are, a bit each */
};

static inline bool store(struct column *column, int64_t row, int64_t value) {
  if (column->width == 8)
    ((int64_t *)column->values)[row] = value;
  else if (column->width == 4)
    ((int32_t *)column->values)[row] = (int32_t)value;
  else
    ((int16_t *)column->values)[row] = (int16_t)value;
  return true;
}

static inline uint64_t eight(const char *at) {
  uint64_t bytes;
  memcpy(&bytes, at, sizeof bytes);
  return bytes;
}

#define EACH(byte) (UINT64_C(0x0101010101010101) * (uint8_t)(byte))

/* A bit for each of 64 bytes, for those that are one of two. */
static inline uint64_t marks_of(const char *at, char one, char other) {
  uint64_t marks = 0;
#ifdef __SSE2__
  for (int i = 0; i < 64; i += 16) {
    __m128i bytes = _mm_loadu_si128((const __m128i *)(at + i));
    __m128i found = _mm_or_si128(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(one)), _mm_cmpeq_epi8(bytes, _mm_set1_epi8(other)));
    marks |= (uint64_t)_mm_movemask_epi8(found) << i;
  }
#else
  const uint64_t low = EACH(0x7f);
  for (int i = 0; i < 64; i += 8) {
    uint64_t first = eight(at + i) ^ EACH(one), second = eight(at + i) ^ EACH(other);
    first = ~((first & low) + low | first | low), second = ~((second & low) + low | second | low);
    /* The highest bit of each byte, side by side. */
    marks |= ((first | second) >> 7) * UINT64_C(0x0102040810204080) >> 56 << i;
  }
#endif
  return marks;
}

/* Read up to eight digits at once, without a branch for each: the texts of most numbers are of any length, which no
 * processor foresees. */
static inline bool few_digits(const char *at, size_t size, uint64_t *value) {
  uint64_t bytes = (eight(at) ^ EACH('0')) << (64 - 8 * size);
  if ((bytes + EACH(0x76) | bytes) & EACH(0x80)) return false;
  bytes = bytes * 10 + (bytes >> 8);
  *value = ((bytes & UINT64_C(0xff000000ff)) * UINT64_C(0xf424000000064) +
            (bytes >> 16 & UINT64_C(0xff000000ff)) * UINT64_C(0x271000000001)) >> 32;
  return true;
}

/* Read a text of digits; false if there is anything else, nothing, or too much. */
static inline bool digits(const char *at, const char *end, int64_t *value) {
  size_t size = (size_t)(end - at), first = size & 7 ? size & 7 : 8;
  uint64_t found, part;
  if (!size || size > MOST_DIGITS || !few_digits(at, first, &found)) return false;
  for (at += first; at < end; at += 8) {
    if (!few_digits(at, 8, &part)) return false;
    found = found * 100000000 + part;
  }
  *value = (int64_t)found;
  return found <= INT64_MAX;
}

static inline bool number(const char *at, const char *end, struct column *column, int64_t row) {
  int64_t value;
  return digits(at, end, &value) && value <= column->most && store(column, row, value);
}

/* Read epoch seconds as milliseconds: as a parser of floats has them, times 1000, to the nearest even number. */
static inline bool epoch_time(const char *at, const char *end, struct column *column, int64_t row) {
  static const int64_t scale[FRACTION_DIGITS + 1] = {1000000, 100000, 10000, 1000, 100, 10, 1};
  int64_t seconds, fraction = 0;
  const char *point = end - FRACTION_DIGITS - 1;
  if (point < at || *point != '.')
    for (point = at; point < end && *point != '.';) point++;
  if (!digits(at, point, &seconds) || seconds >= END_OF_TIME) return false;
  if (point < end) {
    if (end - point - 1 > FRACTION_DIGITS || !digits(point + 1, end, &fraction)) return false;
    fraction *= scale[end - point - 1];
  }
  int64_t microseconds = seconds * 1000000 + fraction;
  if (microseconds == 0) return store(column, row, NO_TIME);
  /* Floats hold whole numbers up to 2^53, here the year 2255. A time near 0 might be taken for none. */
  if (seconds == 0 || microseconds >= INT64_C(1) << 53) return false;
  double milliseconds = (double)microseconds / 1e6 * 1e3;
  const double round_here = 6755399441055744.0; /* 1.5 * 2^52: what is added to it has no room for a fraction */
  return store(column, row, (int64_t)(milliseconds + round_here - round_here));
}

static bool grow(struct words *words) {
  uint64_t mask = words->mask * 2 + 1;
  struct entry *entries = calloc(mask + 1, sizeof *entries);
  if (!entries) return false;
  for (uint64_t i = 0; words->entries && i <= words->mask; i++) {
    if (!words->entries[i].number) continue;
    uint64_t place = words->entries[i].hash & mask;
    while (entries[place].number) place = (place + 1) & mask;
    entries[place] = words->entries[i];
  }
  free(words->entries);
  words->entries = entries;
  words->mask = mask;
  return true;
}

/* Whether a character may stand in a word: any but those that say that a text is another one than we think. */
static inline bool is_plain(char one) { return one > ' ' && one < 0x7f && one != '(' && one != '"' && one != '\\'; }

static bool are_plain(const char *word, size_t size) {
  for (size_t i = 0; i < size; i++)
    if (!is_plain(word[i])) return false;
  return true;
}

/* Return the number of a word, from 0 on; REFUSED if it is new and no word, or without memory. */
static int64_t number_of(struct words *words, const char *word, size_t size, uint64_t hash) {
  uint64_t place = hash & words->mask;
  for (struct entry *one; (one = &words->entries[place])->number; place = (place + 1) & words->mask)
    if (one->hash == hash && one->size == size && !memcmp(words->text + one->place, word, size)) return one->number - 1;
  if (!are_plain(word, size)) return REFUSED;
  words->entries[place] = (struct entry){hash, words->size, (uint32_t)size, (uint32_t)++words->count};
  memcpy(words->text + words->size, word, size);
  words->size += size;
  words->text[words->size++] = '\n';
  int64_t number = (int64_t)words->count - 1;
  return words->count * 2 <= words->mask || grow(words) ? number : REFUSED;
}

static bool word(const char *at, const char *end, struct column *column, int64_t row) {
  struct words *words = column->words;
  size_t size = (size_t)(end - at), prefix = words->prefix_size;
  if (prefix && size >= prefix && *at == *words->prefix && !memcmp(at, words->prefix, prefix)) at += prefix, size -= prefix;
  if (!size || size > LONGEST_WORD) return false;
  uint64_t hash = words->seed;
  for (size_t i = 0; i < size; i += 8) {
    uint64_t bytes = eight(at + i);
    if (size - i < 8) bytes &= (UINT64_C(1) << 8 * (size - i)) - 1;
    hash = (hash ^ bytes) * (words->seed | 1);
    hash ^= hash >> 32;
  }
  int64_t found = number_of(words, at, size, hash);
  return found >= 0 && store(column, row, found);
}

static inline bool value(const char *at, const char *end, struct column *column, int64_t row) {
  switch (column->kind) {
  case NUMBER:
    return number(at, end, column, row);
  case TIME:
    return epoch_time(at, end, column, row);
  case SKIPPED:
    return are_plain(at, (size_t)(end - at));
  default:
    return word(at, end, column, row);
  }
}

static inline bool skip(struct text *text, const char *what, size_t size) {
  if ((size_t)(text->end - text->at) < size || memcmp(text->at, what, size)) return false;
  text->at += size;
  return true;
}

static inline bool skip_digits(struct text *text) {
  const char *from = text->at;
  while (text->at < text->end && *text->at >= '0' && *text->at <= '9') text->at++;
  return text->at > from;
}

/* Whether a marker of the print plugin stands here, `--START (1)--` or `--END (1)--`, and its line ends. */
static bool marker(struct text *text) {
  return (skip(text, "--START (", 9) || skip(text, "--END (", 7)) && skip_digits(text) && skip(text, ")--\n", 4);
}

static bool begin(struct column *columns, int count) {
  for (int i = 0; i < count; i++) {
    struct words *words = columns[i].kind == WORD ? columns[i].words : NULL;
    if (words && !words->entries) {
      words->size = words->count = 0;
      words->mask = 2047;
      if (!grow(words)) return false;
    }
  }
  return true;
}

static void finish(struct column *columns, int count) {
  for (int i = 0; i < count; i++) {
    if (columns[i].kind != WORD) continue;
    free(columns[i].words->entries);
    columns[i].words->entries = NULL;
  }
}

static int64_t csv_rows(struct text text, struct lines *lines, int64_t row) {
  if (text.at == text.end) return row;
  /* Where values end is found beforehand: else each would wait for the one before it. */
  const char *from = text.at, separator = lines->separator;
  uint64_t marks = marks_of(from, separator, '\n');
  int last = lines->count - 1;
  while (text.at < text.end) {
    bool is_marker = *text.at == '-';
    if (row == lines->rows && !is_marker) return REFUSED;
    for (int i = is_marker ? last : 0; i <= last; i++) {
      while (!marks) marks = marks_of(from += 64, separator, '\n');
      const char *end = from + __builtin_ctzll(marks);
      marks &= marks - 1;
      if (*end != (i == last ? '\n' : separator)) return REFUSED;
      if (is_marker ? !marker(&text) : !value(text.at, end, &lines->columns[i], row)) return REFUSED;
      text.at = end + 1;
    }
    row += !is_marker;
  }
  return row;
}

/* Read a key; return its column, most likely the one after that of the key before. Of another key return REFUSED. */
static int key(struct text *text, struct lines *lines, int likely) {
  for (int i = 0; i < lines->count; i++) {
    int one = likely + i < lines->count ? likely + i : likely + i - lines->count;
    if (skip(text, lines->columns[one].key, lines->columns[one].key_size)) return one;
  }
  return REFUSED;
}

static bool quoted(struct text *text, const char **from, size_t *size) {
  if (!skip(text, "\"", 1)) return false;
  *from = text->at;
  while (text->at < text->end && is_plain(*text->at)) text->at++;
  *size = (size_t)(text->at - *from);
  return skip(text, "\"", 1);
}

static bool is_purge_marker(const char *event, size_t size) {
  return (size == 10 && !memcmp(event, "purge_init", size)) || (size == 11 && !memcmp(event, "purge_close", size));
}

static int of_marker(struct text *text, int answer) {
  const char *ignored;
  size_t size;
  if (!quoted(text, &ignored, &size) || !skip(text, ":", 1)) return REFUSED;
  skip(text, " ", 1);
  return quoted(text, &ignored, &size) || skip_digits(text) ? answer : REFUSED;
}

/* Read a key and its value into its column; return which that is, or behind the last one with what only markers have. */
static int member(struct text *text, struct lines *lines, int64_t row, int likely, bool *is_marker) {
  const char *from;
  size_t size;
  int found = key(text, lines, likely);
  if (found < 0) return *is_marker ? of_marker(text, lines->count) : REFUSED;
  skip(text, " ", 1);
  struct column *column = &lines->columns[found];
  if (column->kind == SKIPPED) {
    if (!quoted(text, &from, &size)) return REFUSED;
    *is_marker = is_purge_marker(from, size);
    return found;
  }
  if (column->is_quoted) {
    if (!quoted(text, &from, &size)) return REFUSED;
  } else {
    from = text->at;
    if (!skip_digits(text) || (*from == '0' && text->at - from > 1)) return REFUSED;
    size = (size_t)(text->at - from);
  }
  return value(from, from + size, column, row) ? found : REFUSED;
}

static int64_t json_rows(struct text text, struct lines *lines, int64_t row) {
  while (text.at < text.end) {
    uint64_t found = 0;
    bool is_marker = false;
    int last = -1;
    if (row == lines->rows || !skip(&text, "{", 1)) return REFUSED;
    do {
      skip(&text, " ", 1);
      last = member(&text, lines, row, last + 1 < lines->count ? last + 1 : 0, &is_marker);
      if (last < 0 || (last < lines->count && found >> last & 1)) return REFUSED;
      if (last < lines->count) found |= UINT64_C(1) << last;
    } while (skip(&text, ",", 1));
    if (!skip(&text, "}\n", 2)) return REFUSED;
    if (is_marker) continue;
    if (row && found != lines->present) return REFUSED;
    lines->present = found;
    row++;
  }
  return row;
}

/* Read a text; its last lines from a copy, since we look at more bytes at once than a value may have. */
static int64_t read(const char *text, size_t size, struct lines *lines,
                    int64_t (*rows_of)(struct text, struct lines *, int64_t)) {
  if (!size) return 0;
  if (text[size - 1] != '\n') return REFUSED;
  size_t cut = size < ROOM ? 0 : size - ROOM;
  while (cut && text[cut - 1] != '\n') cut--;
  char *end = calloc(size - cut + ROOM, 1);
  int64_t row = REFUSED;
  if (end && begin(lines->columns, lines->count)) {
    memcpy(end, text + cut, size - cut);
    row = rows_of((struct text){text, text + cut}, lines, 0);
    if (row >= 0) row = rows_of((struct text){end, end + size - cut}, lines, row);
  }
  finish(lines->columns, lines->count);
  free(end);
  return row;
}

/* Return the number of newlines. */
int64_t count_lines(const char *text, size_t size) {
  int64_t count = 0;
  /* A compiler adds up many bytes at once where their sum stays a byte. */
  for (size_t i = 0; i < size;) {
    uint8_t few = 0;
    for (size_t end = size - i < UINT8_MAX ? size : i + UINT8_MAX; i < end; i++) few += text[i] == '\n';
    count += few;
  }
  return count;
}

/* Read lines of CSV that all have these columns; return the number of records. */
int64_t read_csv(const char *text, size_t size, struct lines *lines) { return read(text, size, lines, csv_rows); }

/* Read lines of JSON whose records all have the same keys, of these; return the number of records.
 *
 * A SKIPPED column is the event's type: lines that begin or end a purge are no records.
 */
int64_t read_json(const char *text, size_t size, struct lines *lines) {
  return read(text, size, lines, json_rows);
}
