/* Loaded into nfacctd and sfacctd before libc (LD_PRELOAD), with kept_templates.c: a quicker printf.
 *
 * pmacct writes each of a record's 21 columns with a call of its own, and libc reads the format anew each time: that is
 * more than a third of all that nfacctd does for a record. Here the few formats of its CSV are put together by hand;
 * any other goes to libc. What comes out is the same, to the byte (tests/ingest/test_quick_printf.py).
 */
#define _GNU_SOURCE
#include "kept_templates.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio_ext.h>
#include <string.h>
#include <sys/single_threaded.h>

#ifndef __GLIBC__
#error "made for glibc: it writes into the buffers of its streams, as putc_unlocked does"
#endif

enum { DIGITS = 20, FRACTION = 6, QUAD = 16 }; /* of a number of 64 bits, of microseconds; "255.255.255.255" and NUL */
enum { ANOTHER = -2 }; /* format, or a text that is NULL: for libc */

char printed_address[INET6_ADDRSTRLEN];

static const char *(*libc_inet_ntop)(int, const void *, char *, socklen_t);

__attribute__((constructor)) static void find_libc(void) {
  *(void **)&libc_inet_ntop = dlsym(RTLD_NEXT, "inet_ntop");
}

/* Put a number's digits before `end`; return where they begin. */
static char *digits_before(char *end, uint64_t value) {
  do {
    *--end = (char)('0' + value % 10);
  } while (value /= 10);
  return end;
}

static char *put_digits(char *to, uint64_t value) {
  char digits[DIGITS], *from = digits_before(digits + DIGITS, value);
  size_t count = (size_t)(digits + DIGITS - from);
  memcpy(to, from, count);
  return to + count;
}

/* Write into the buffer where there is room, of a stream that waits until it is full. */
static int append(FILE *stream, const char *text, size_t count) {
  if (stream->_IO_write_end - stream->_IO_write_ptr > (ptrdiff_t)count && !__flbf(stream)) {
    memcpy(stream->_IO_write_ptr, text, count);
    stream->_IO_write_ptr += count;
    return 0;
  }
  return fwrite_unlocked(text, 1, count, stream) == count ? 0 : -1;
}

/* A separator and a value: "%s%u", "%s%d", "%s%s", "%s%lu", "%s%lu\n". */
static int print_column(FILE *stream, const char *format, va_list values) {
  char number[DIGITS + 2], *end = number + DIGITS + 1;
  const char *separator = va_arg(values, const char *), *text;
  if (format[3] == 'u' && !format[4]) {
    text = digits_before(end, va_arg(values, unsigned));
  } else if (format[3] == 'd' && !format[4]) {
    int value = va_arg(values, int);
    char *from = digits_before(end, value < 0 ? -(uint64_t)value : (uint64_t)value);
    if (value < 0) *--from = '-';
    text = from;
  } else if (format[3] == 's' && !format[4]) {
    text = va_arg(values, const char *);
    if (text) end = (char *)text + strlen(text);
  } else if (format[3] == 'l' && format[4] == 'u' && (!format[5] || (format[5] == '\n' && !format[6]))) {
    text = digits_before(end, va_arg(values, unsigned long));
    if (format[5]) *end++ = '\n';
  } else {
    return ANOTHER;
  }
  if (!separator || !text) return ANOTHER;
  size_t first = strlen(separator), second = (size_t)(end - text);
  int is_shared = !__libc_single_threaded;
  if (is_shared) flockfile(stream);
  int has_failed = append(stream, separator, first) || append(stream, text, second);
  if (is_shared) funlockfile(stream);
  return has_failed ? -1 : (int)(first + second);
}

int __fprintf_chk(FILE *stream, int flag, const char *format, ...) {
  int result = ANOTHER;
  va_list values;
  (void)flag; /* has libc look for formats that come from outside: pmacct has none */
  if (format[0] == '%' && format[1] == 's' && format[2] == '%') {
    va_start(values, format);
    result = print_column(stream, format, values);
    va_end(values);
  } else if (stream == template_stream && !strcmp(format, "%s\n")) {
    va_start(values, format);
    if (keep_template(stream, va_arg(values, const char *))) result = 0;
    va_end(values);
  }
  if (result == ANOTHER) {
    va_start(values, format);
    result = vfprintf(stream, format, values);
    va_end(values);
  }
  return result;
}

/* A moment: "%ld.%.6ld". */
int __snprintf_chk(char *to, size_t size, int flag, size_t room, const char *format, ...) {
  va_list values;
  int result;
  (void)flag;
  if (size > room) __builtin_trap(); /* as libc: more is asked for than there is */
  va_start(values, format);
  if (size > DIGITS + 1 + FRACTION && !strcmp(format, "%ld.%.6ld")) {
    long second = va_arg(values, long), fraction = va_arg(values, long);
    if (second >= 0 && fraction >= 0 && fraction <= 999999) {
      char *end = put_digits(to, (uint64_t)second);
      *end++ = '.';
      for (int i = FRACTION - 1; i >= 0; i--, fraction /= 10) end[i] = (char)('0' + fraction % 10);
      end[FRACTION] = '\0';
      va_end(values);
      return (int)(end + FRACTION - to);
    }
    va_end(values);
    va_start(values, format);
  }
  result = vsnprintf(to, size, format, values);
  va_end(values);
  return result;
}

const char *inet_ntop(int family, const void *address, char *to, socklen_t size) {
  if (family != AF_INET || size < QUAD) {
    const char *text = libc_inet_ntop(family, address, to, size);
    return text ? strcpy(printed_address, text), text : NULL;
  }
  char *end = to;
  for (int i = 0; i < 4; i++) {
    end = put_digits(end, ((const unsigned char *)address)[i]);
    *end++ = i < 3 ? '.' : '\0';
  }
  memcpy(printed_address, to, QUAD);
  return to;
}
