#!/usr/bin/env php
<?php
// Works on the jobs of a queue, one after the other, until SIGTERM. Needs the extensions redis (phpredis) and pcntl.
$queue = getenv('QUEUE') ?: 'mail';
$lease = (int) (getenv('LEASE') ?: 30000);                               // ms
$me = gethostname() . '-' . getmypid() . '-' . bin2hex(random_bytes(4)); // no other has this name, ever
$redis = new Redis();
$stop = false;
pcntl_async_signals(true);
pcntl_signal(SIGTERM, function () use (&$stop) { $stop = true; });

// Yours; this one sleeps so many ms. An exception fails the job. PHP has no thread for the heartbeat: call $alive now and
// then, more often than the lease lasts. Once it is false, nobody wants the result.
function work($payload, $alive)
{
    if (!ctype_digit($payload)) throw new InvalidArgumentException("not a number: $payload");
    for ($end = microtime(true) + $payload / 1000; microtime(true) < $end && $alive();) usleep(20000);
    return "slept $payload ms";
}

function ask(...$words)
{
    global $redis;
    if (!$redis->isConnected()) {
        $redis->connect(getenv('REDIS_HOST') ?: 'localhost', (int) (getenv('REDIS_PORT') ?: 6379), 10);
        $redis->setOption(Redis::OPT_READ_TIMEOUT, 10);                  // longer than BLOCK
        $redis->setOption(Redis::OPT_REPLY_LITERAL, true);               // words as they are, not true
    }
    $redis->clearLastError();
    $answer = $redis->rawCommand(...$words);
    if ($redis->getLastError()) throw new RedisException($redis->getLastError());
    return $answer;
}

// Asks until there is an answer: all that a worker says may be said twice.
function call(...$words)
{
    while (true) {
        try {
            return ask(...$words);
        } catch (RedisException $error) {
            // An error of the server begins with a word in capitals; the others are of the connection.
            if (preg_match('/^(?!LOADING)[A-Z]{2,} /', $error->getMessage()) || $GLOBALS['stop']) throw $error;
            sleep(1);
        }
    }
}

function run($job, $token, $payload)
{
    global $queue, $lease, $me, $stop;
    if ($stop) return call('RQ.RELEASE', $queue, $job, $token);          // while it waited for a job
    $gone = false;
    $beat = microtime(true);
    $alive = function () use ($job, $token, $queue, $lease, $me, &$gone, &$beat) {
        if ($gone || microtime(true) - $beat < $lease / 3000) return !$gone;
        $beat = microtime(true);
        try {
            $gone = ask('RQ.EXTEND', $queue, $me, 'LEASE', $lease, $job, $token) !== ['ok']; // lost, or cancelled
        } catch (RedisException) {                                       // the next beat may get through
        }
        return !$gone;
    };
    try {
        $verdict = ['RQ.ACK', $queue, $job, $token, 'RESULT', work($payload, $alive)];
    } catch (Exception $error) {
        $verdict = ['RQ.FAIL', $queue, $job, $token, 'ERROR', $error->getMessage()];
    }
    call(...($gone ? ['RQ.RELEASE', $queue, $job, $token] : $verdict));
}

while (!$stop) {
    try {
        foreach (call('RQ.CLAIM', $queue, $me, 'BLOCK', 5000, 'LEASE', $lease) ?: [] as [$job, $token, $payload]) {
            run($job, $token, $payload);
        }
    } catch (RedisException $error) {                                    // STALE: it is another's job now
        fwrite(STDERR, $error->getMessage() . "\n");
        sleep(1);
    }
}
