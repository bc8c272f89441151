/* Works on the jobs of a queue, one after the other, until SIGTERM. Needs hiredis: cc -o worker worker.c -lhiredis */
#define _GNU_SOURCE
#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct job {
    const redisReply *id, *token, *payload;
    long long beat;  /* when it was last heard of */
    int gone;        /* nobody wants the result any more */
};

static const char *queue, *host;
static int lease, port;  /* lease: ms */
static char me[320];
static redisContext *server;
static volatile sig_atomic_t stop;

static long long now(void)  /* ms */
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000LL + time.tv_nsec / 1000000;
}

/* One command. With `again` it asks until there is an answer: all that a worker says may be said twice. NULL: none came. */
static redisReply *call(int again, const char *format, ...)
{
    struct timeval patience = {10, 0};  /* longer than BLOCK */
    for (;; sleep(1)) {
        redisReply *reply = NULL;
        if (!server && (server = redisConnectWithTimeout(host, port, patience)) && !server->err)
            redisSetTimeout(server, patience);
        if (server && !server->err) {
            va_list words;
            va_start(words, format);
            reply = redisvCommand(server, format, words);
            va_end(words);
        }
        if (reply && (reply->type != REDIS_REPLY_ERROR || strncmp(reply->str, "LOADING", 7)))
            return reply;
        freeReplyObject(reply);
        if (server && server->err) {
            fprintf(stderr, "%s\n", server->errstr);
            redisFree(server);
            server = NULL;
        }
        if (!again || stop)
            return NULL;
    }
}

/* The heartbeat: call it now and then, more often than the lease lasts. 0: give the job up, it is lost or cancelled. */
static int alive(struct job *job)
{
    if (job->gone || now() - job->beat < lease / 3)
        return !job->gone;
    redisReply *reply = call(0, "RQ.EXTEND %s %s LEASE %d %b %b", queue, me, lease, job->id->str, job->id->len,
                             job->token->str, job->token->len);
    if (reply && reply->type == REDIS_REPLY_ARRAY)  /* else: the next beat may get through */
        job->gone = strcmp(reply->element[0]->str, "ok") != 0;
    freeReplyObject(reply);
    job->beat = now();
    return !job->gone;
}

/* Yours; this one sleeps so many ms. It writes the result, or why it failed: then it returns -1. */
static int work(struct job *job, char *text, size_t size)
{
    char *end;
    long ms = strtol(job->payload->str, &end, 10);
    if (*end || !job->payload->len) {
        snprintf(text, size, "not a number: %s", job->payload->str);
        return -1;
    }
    for (long long until = now() + ms; now() < until && alive(job);)
        usleep(20000);
    snprintf(text, size, "slept %ld ms", ms);
    return 0;
}

static void run(struct job *job)
{
    char text[200];
    const char *verdict = "RQ.RELEASE %s %b %b";  /* it was stopped while it waited for a job, or gave up */
    if (!stop) {
        int failed = work(job, text, sizeof text) < 0;
        if (!job->gone)
            verdict = failed ? "RQ.FAIL %s %b %b ERROR %s" : "RQ.ACK %s %b %b RESULT %s";
    }
    redisReply *reply = call(1, verdict, queue, job->id->str, job->id->len, job->token->str, job->token->len, text);
    if (reply && reply->type == REDIS_REPLY_ERROR)
        fprintf(stderr, "%s\n", reply->str);  /* STALE: it is another's job now */
    freeReplyObject(reply);
}

static void on_term(int number)
{
    stop = number;
}

int main(void)
{
    char name[256] = "";
    unsigned int chance = 0;
    gethostname(name, sizeof name - 1);
    getentropy(&chance, sizeof chance);
    snprintf(me, sizeof me, "%s-%d-%08x", name, (int)getpid(), chance);  /* no other has this name, ever */
    queue = getenv("QUEUE") ? getenv("QUEUE") : "mail";
    host = getenv("REDIS_HOST") ? getenv("REDIS_HOST") : "localhost";
    port = getenv("REDIS_PORT") ? atoi(getenv("REDIS_PORT")) : 6379;
    lease = getenv("LEASE") ? atoi(getenv("LEASE")) : 30000;
    signal(SIGPIPE, SIG_IGN);
    signal(SIGTERM, on_term);

    while (!stop) {
        redisReply *reply = call(1, "RQ.CLAIM %s %s BLOCK 5000 LEASE %d", queue, me, lease);
        if (reply && reply->type == REDIS_REPLY_ERROR) {
            fprintf(stderr, "%s\n", reply->str);
            sleep(1);
        }
        for (size_t i = 0; reply && reply->type == REDIS_REPLY_ARRAY && i < reply->elements; i++) {
            redisReply **part = reply->element[i]->element;
            run(&(struct job){.id = part[0], .token = part[1], .payload = part[2], .beat = now()});
        }
        freeReplyObject(reply);
    }
    return 0;
}
