/* SPDX-License-Identifier: Apache-2.0 */
#include "common/fence.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { HOST_ROOM = 256 };

/* Splits "host", "host:port" or "[v6]:port". port 0: none is given. */
static bool split_pattern(const char *text, char host[HOST_ROOM], unsigned *port)
{
    const char *bracket = *text == '[' ? strchr(text, ']') : NULL, *colon = strchr(bracket ? bracket : text, ':');
    const size_t n = colon ? (size_t)(colon - text) : strlen(text);
    char *end = NULL;
    *port = 0;
    if (!n || n >= HOST_ROOM || (*text == '[' && !bracket))
        return false;
    if (colon) {
        const unsigned long v = isdigit((unsigned char)colon[1]) ? strtoul(colon + 1, &end, 10) : 0;
        if (!v || v > 65535 || *end)
            return false;
        *port = (unsigned)v;
    }
    snprintf(host, HOST_ROOM, "%.*s", (int)n, text);
    return true;
}

static bool is_address(const char *host)
{
    char text[HOST_ROOM];
    struct in6_addr a;
    const size_t n = strlen(host);
    if (inet_pton(AF_INET, host, &a) == 1)
        return true;
    if (n < 3 || *host != '[')
        return false;
    snprintf(text, sizeof text, "%.*s", (int)n - 2, host + 1);
    return inet_pton(AF_INET6, text, &a) == 1;
}

bool ntx_fence_is_pattern(const char *text)
{
    char host[HOST_ROOM];
    unsigned port;
    if (!strcmp(text, "*"))
        return true;
    if (!split_pattern(text, host, &port))
        return false;
    const char *name = strncmp(host, "*.", 2) ? host : host + 2;
    return *name && (is_address(host) || (strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                                       "0123456789-._") == strlen(name) &&
                                          *name != '.' && *name != '-'));
}

static bool fits(const char *pattern, const char *host, unsigned port)
{
    char name[HOST_ROOM];
    unsigned at;
    const bool usual = port == 80 || port == 443;
    if (!strcmp(pattern, "*"))
        return usual && !is_address(host);
    if (!split_pattern(pattern, name, &at) || (at ? at != port : !usual))
        return false;
    const size_t n = strlen(host), k = strlen(name) - 1; /* ".example.org" */
    if (!strncmp(name, "*.", 2))
        return n > k && !strcasecmp(host + n - k, name + 1);
    return !strcasecmp(host, name);
}

bool ntx_fence_allows(const struct ntx_fence *f, const char *origin, bool *address)
{
    char host[HOST_ROOM];
    unsigned port;
    const char *at = strstr(origin, "://");
    if (!at || !split_pattern(at + 3, host, &port))
        return false;
    for (unsigned i = 0; i < f->n; i++)
        if (fits(f->pattern[i], host, port)) {
            *address = is_address(host);
            return true;
        }
    return false;
}

/* ---- addresses */

static bool is_within(uint32_t a, uint32_t net, unsigned bits) { return (a ^ net) >> (32 - bits) == 0; }

static bool is_public_4(uint32_t a)
{
    static const struct {
        uint32_t net;
        unsigned bits;
    } others[] = {
        {0x00000000, 8},  {0x0a000000, 8},  {0x64400000, 10}, {0x7f000000, 8},  {0xa9fe0000, 16},
        {0xac100000, 12}, {0xc0000000, 24}, {0xc0000200, 24}, {0xc0586300, 24}, {0xc0a80000, 16},
        {0xc6120000, 15}, {0xc6336400, 24}, {0xcb007100, 24}, {0xe0000000, 3},
    };
    for (unsigned i = 0; i < sizeof others / sizeof *others; i++)
        if (is_within(a, others[i].net, others[i].bits))
            return false;
    return true;
}

/* Global unicast, without the parts that are for documents or lead into IPv4 (6to4, Teredo). */
static bool is_public_6(const uint8_t a[16])
{
    uint32_t top, last;
    memcpy(&top, a, sizeof top);
    memcpy(&last, a + 12, sizeof last);
    top = ntohl(top);
    if (IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)(const void *)a))
        return is_public_4(ntohl(last));
    return is_within(top, 0x20000000, 3) && !is_within(top, 0x20010000, 23) && !is_within(top, 0x20010db8, 32) &&
           !is_within(top, 0x20020000, 16) && !is_within(top, 0x3fff0000, 20);
}

bool ntx_fence_is_public(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET)
        return is_public_4(ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr));
    if (a->sa_family == AF_INET6)
        return is_public_6(((const struct sockaddr_in6 *)(const void *)a)->sin6_addr.s6_addr);
    return false;
}
