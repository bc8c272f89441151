// PORT JOBS add|work: adds so many jobs, or works until so many are done.
const { Queue, Worker } = require('bullmq');

const [port, jobs] = process.argv.slice(2, 4).map(Number);
const connection = { host: '127.0.0.1', port, maxRetriesPerRequest: null };

async function add() {
  const queue = new Queue('bench', { connection });
  const one = { name: 'job', data: { payload: 'x'.repeat(100) }, opts: { removeOnComplete: true } };
  for (let added = 0; added < jobs; added += 1000) await queue.addBulk(Array(1000).fill(one));
  await queue.close();
}

function work() {
  return new Promise((resolve) => {
    let done = 0;
    const worker = new Worker('bench', async () => {}, { connection, concurrency: 50 });
    worker.on('completed', () => { if (++done === jobs) resolve(worker.close()); });
  });
}

(process.argv[4] === 'add' ? add() : work()).then(() => process.exit(0));
