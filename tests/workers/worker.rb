#!/usr/bin/env ruby
# Works on the jobs of a queue, one after the other, until SIGTERM. Needs redis-rb: gem install redis
require "redis"
require "securerandom"
require "socket"

QUEUE, LEASE = ENV.fetch("QUEUE", "mail"), Integer(ENV.fetch("LEASE", 30_000)) # ms
REDIS = Redis.new(host: ENV.fetch("REDIS_HOST", "localhost"), port: Integer(ENV.fetch("REDIS_PORT", 6379)),
                  timeout: 10) # longer than BLOCK
ME = "#{Socket.gethostname}-#{Process.pid}-#{SecureRandom.hex(4)}" # no other has this name, ever
Job = Struct.new(:id, :token, :payload, :delivery, :gone)
$stop = false
trap("TERM") { $stop = true }

# Yours; this one sleeps so many ms. An exception fails the job. Once `job.gone`, nobody wants the result.
def work(job)
  ms = Integer(job.payload)
  finish = Process.clock_gettime(Process::CLOCK_MONOTONIC) + ms / 1000.0
  sleep 0.02 while Process.clock_gettime(Process::CLOCK_MONOTONIC) < finish && !job.gone
  "slept #{ms} ms"
end

# Asks until there is an answer: all that a worker says may be said twice.
def call(*words)
  REDIS.call(*words)
rescue Redis::BaseError => error
  raise if $stop || !(error.is_a?(Redis::BaseConnectionError) || error.message.start_with?("LOADING"))

  sleep 1
  retry
end

def run(job)
  return call("RQ.RELEASE", QUEUE, job.id, job.token) if $stop # while it waited for a job

  begin
    $held = job
    verdict = ["RQ.ACK", QUEUE, job.id, job.token, "RESULT", work(job)]
  rescue StandardError => error
    verdict = ["RQ.FAIL", QUEUE, job.id, job.token, "ERROR", error.message]
  end
  $held = nil
  call(*(job.gone ? ["RQ.RELEASE", QUEUE, job.id, job.token] : verdict))
end

Thread.new do # the heartbeat
  loop do
    sleep LEASE / 3000.0
    job = $held or next
    job.gone = true if REDIS.call("RQ.EXTEND", QUEUE, ME, "LEASE", LEASE, job.id, job.token) != ["ok"] # lost, or cancelled
  rescue Redis::BaseError # the next beat may get through
  end
end

until $stop
  begin
    jobs = call("RQ.CLAIM", QUEUE, ME, "BLOCK", 5000, "LEASE", LEASE) || []
    jobs.each { |job| run(Job.new(*job)) }
  rescue Redis::BaseError => error # STALE: it is another's job now
    warn error.message
    sleep 1
  end
end
