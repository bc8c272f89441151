#!/usr/bin/env node
// Works on the jobs of a queue, one after the other, until SIGTERM. Needs ioredis: npm install ioredis
const Redis = require("ioredis"), { randomUUID } = require("crypto"), { hostname } = require("os");

const queue = process.env.QUEUE ?? "mail", lease = Number(process.env.LEASE ?? 30000);  // ms
const redis = new Redis({
  host: process.env.REDIS_HOST ?? "localhost", port: Number(process.env.REDIS_PORT ?? 6379),
  socketTimeout: 10000,        // longer than BLOCK
  maxRetriesPerRequest: null,  // asks until there is an answer: all that a worker says may be said twice
});
redis.on("error", (error) => console.error(error.message));
const me = `${hostname()}-${process.pid}-${randomUUID().slice(0, 8)}`;  // no other has this name, ever
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
let stop = false;
process.on("SIGTERM", () => { stop = true; });

// Yours; this one sleeps so many ms. An exception fails the job. Once `gone` is aborted, nobody wants the result.
async function work(payload, gone) {
  const ms = Number(payload), end = Date.now() + ms;
  if (Number.isNaN(ms)) throw new Error(`not a number: ${payload}`);
  while (Date.now() < end && !gone.aborted) await sleep(20);
  return `slept ${ms} ms`;
}

async function run(job, token, payload) {
  if (stop) return redis.call("RQ.RELEASE", queue, job, token);  // while it waited for a job
  const gone = new AbortController();
  const heartbeat = setInterval(async () => {
    const answer = await redis.call("RQ.EXTEND", queue, me, "LEASE", lease, job, token).catch(() => ["ok"]);
    if (answer[0] !== "ok") gone.abort();  // lost, or cancelled
  }, lease / 3);
  let verdict;
  try {
    verdict = ["RQ.ACK", queue, job, token, "RESULT", await work(payload, gone.signal)];
  } catch (error) {
    verdict = ["RQ.FAIL", queue, job, token, "ERROR", error.message];
  }
  clearInterval(heartbeat);
  await redis.call(...(gone.signal.aborted ? ["RQ.RELEASE", queue, job, token] : verdict));
}

(async () => {
  while (!stop) {
    try {  // buffers, as a payload may hold any byte
      const jobs = await redis.callBuffer("RQ.CLAIM", queue, me, "BLOCK", 5000, "LEASE", lease);
      for (const [job, token, payload] of jobs ?? []) await run(job, token, payload);
    } catch (error) {  // STALE: it is another's job now
      console.error(error.message);
      await sleep(1000);
    }
  }
  redis.disconnect();
})();
