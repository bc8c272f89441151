//! Waiting: `RQ.CLAIM … BLOCK`, `RQ.MCLAIM … BLOCK`, and each way in which a wait can end.

use std::time::Instant;

use crate::common::*;
use crate::{args, cmd, refused, send, tests};

pub const TESTS: &[Test] = tests![
    served_by_an_enqueue,
    served_when_a_delay_is_due,
    served_when_a_lease_lapses,
    served_when_a_job_is_released_or_recovered,
    served_when_a_retry_is_due,
    a_time_out_replies_nil_in_time,
    block_zero_waits_on,
    a_job_that_is_there_needs_no_wait,
    oldest_waiter_first,
    one_batch_serves_many,
    one_waiter_takes_as_many_as_it_asked,
    waiting_on_several_queues,
    waiting_on_a_queue_that_does_not_exist,
    client_unblock,
    client_kill_and_disconnect,
    killed_between_grant_and_reply,
    half_closed_client,
    pipeline_behind_a_waiting_claim,
    key_deleted_overwritten_renamed_moved_flushed,
    swapdb_brings_the_queue,
    rename_move_restore_copy_bring_the_queue,
    demotion_ends_the_wait,
    pause_holds_waiting_claims,
    multi_and_scripts_do_not_wait,
    a_transaction_serves_after_it,
    a_redelivery_goes_to_the_last_asker,
    many_waiters_no_job_lost,
    many_are_served_a_few_at_a_time,
    waiting_claims_of_other_databases,
    resp3_waits_too,
];

#[track_caller]
fn served(client: &mut Client) -> Vec<Job> {
    jobs(&client.read())
}

#[track_caller]
fn served_one(client: &mut Client) -> Job {
    let all = served(client);
    assert_eq!(all.len(), 1, "{all:?}");
    all.into_iter().next().expect("one")
}

fn served_by_an_enqueue(lab: &Lab) {
    let server = lab.server();
    let mut waiter = waiting_claim(&server, "q", "w", 0);
    let mut c = server.client();
    let id = enqueue(&mut c, "q", "x");
    let job = served_one(&mut waiter);
    assert_eq!((job.id.as_slice(), job.payload.as_slice(), job.delivery), (id.as_bytes(), &b"x"[..], 1));
    assert_eq!(counts(&mut c, "q"), Counts { active: 1, ..Counts::default() });
    // The connection goes on as usual.
    assert_eq!(ack(&mut waiter, "q", &job), 1);
    send!(waiter, "RQ.CLAIM", "q", "w", "BLOCK", 0);
    until_blocked(&server, 1);
    enqueue(&mut c, "q", "y");
    assert_eq!(served_one(&mut waiter).payload, b"y");
}

fn served_when_a_delay_is_due(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let mut waiter = waiting_claim(&server, "q", "w", 0);
    let start = Instant::now();
    cmd!(c, "RQ.ENQUEUE", "q", "x", "DELAY", 400);
    served_one(&mut waiter);
    let took = start.elapsed();
    assert!(took >= ms(399) && took < ms(3000), "{took:?}");
    // Brought forward while it waits.
    let id = cmd!(c, "RQ.ENQUEUE", "q", "x", "DELAY", 3_600_000).text();
    send!(waiter, "RQ.CLAIM", "q", "w", "BLOCK", 0);
    until_blocked(&server, 1);
    cmd!(c, "RQ.RESCHEDULE", "q", id, "DELAY", 100);
    assert_eq!(served_one(&mut waiter).id, id.as_bytes());
}

fn served_when_a_lease_lapses(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    enqueue(&mut c, "q", "x");
    let first = claim_for(&mut c, "q", "dead", 200);
    let mut waiter = waiting_claim(&server, "q", "w", 0);
    let again = served_one(&mut waiter);
    assert_eq!((again.id, again.delivery), (first.id, 2));
}

fn served_when_a_job_is_released_or_recovered(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    enqueue(&mut c, "q", "x");
    let first = claim(&mut c, "q", "w1");
    let mut waiter = waiting_claim(&server, "q", "w2", 0);
    cmd!(c, "RQ.RELEASE", "q", first.id, first.token);
    assert_eq!(served_one(&mut waiter).delivery, 2);
    let mut waiter = waiting_claim(&server, "q", "w3", 0);
    assert_eq!(cmd!(c, "RQ.RECOVER", "q", "WORKERS", 1, "w2").list()[0].int(), 1);
    assert_eq!(served_one(&mut waiter).delivery, 3);
}

fn served_when_a_retry_is_due(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    enqueue(&mut c, "q", "x");
    let job = claim(&mut c, "q", "w");
    let mut waiter = waiting_claim(&server, "q", "w", 0);
    cmd!(c, "RQ.FAIL", "q", job.id, job.token, "RETRY", 100);
    assert_eq!(served_one(&mut waiter).delivery, 2);
    let mut waiter = waiting_claim(&server, "q", "w", 0);
    let dead = enqueue(&mut c, "q", "y");
    let job = served_one(&mut waiter);
    cmd!(c, "RQ.FAIL", "q", job.id, job.token, "DEAD");
    let mut waiter = waiting_claim(&server, "q", "w", 0);
    cmd!(c, "RQ.REDRIVE", "q", dead);
    assert_eq!(served_one(&mut waiter).id, dead.as_bytes());
}

fn a_time_out_replies_nil_in_time(lab: &Lab) {
    let server = lab.server();
    for queue in ["missing", "empty"] {
        let mut c = server.client();
        if queue == "empty" {
            cmd!(c, "RQ.QUEUE.SET", "empty", "LEASE", 1000);
        }
        for block in [1, 300] {
            let start = Instant::now();
            assert!(cmd!(c, "RQ.CLAIM", queue, "w", "BLOCK", block).is_nil());
            let took = start.elapsed();
            assert!(took >= ms(block) - ms(1) && took < ms(block) + ms(1500), "BLOCK {block} took {took:?}");
        }
        for wrong in ["-1", "0.5", "", "x", "9223372036854775808", "1e3"] {
            assert_eq!(refused!(c, "RQ.CLAIM", queue, "w", "BLOCK", wrong), "ERR", "BLOCK {wrong}");
        }
    }
    // The longest wait that can be written neither ends at once nor harms the server; it may be refused.
    let mut c = server.client();
    send!(c, "RQ.CLAIM", "q", "w", "BLOCK", i64::MAX);
    match c.read_within(ms(200)) {
        None => {
            enqueue(&mut server.client(), "q", "x");
            served_one(&mut c);
        }
        Some(reply) => assert_eq!(reply.error().word(), "ERR"),
    }
}

fn block_zero_waits_on(lab: &Lab) {
    let server = lab.server();
    let mut waiter = waiting_claim(&server, "q", "w", 0);
    assert!(waiter.read_within(ms(500)).is_none());
    enqueue(&mut server.client(), "q", "x");
    served_one(&mut waiter);
}

fn a_job_that_is_there_needs_no_wait(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    enqueue(&mut c, "q", "x");
    let job = jobs(&cmd!(c, "RQ.CLAIM", "q", "w", "BLOCK", 0, "COUNT", 5));
    assert_eq!(job.len(), 1);
}

fn oldest_waiter_first(lab: &Lab) {
    let server = lab.server();
    let mut waiters: Vec<Client> =
        (0..5).map(|number| waiting_claim(&server, "q", &format!("w{number}"), 0)).collect();
    let mut c = server.client();
    for (number, waiter) in waiters.iter_mut().enumerate() {
        enqueue(&mut c, "q", number);
        assert_eq!(served_one(waiter).text(), number.to_string());
    }
}

fn one_batch_serves_many(lab: &Lab) {
    let server = lab.server();
    let mut waiters: Vec<Client> =
        (0..10).map(|number| waiting_claim(&server, "q", &format!("w{number}"), 0)).collect();
    let mut c = server.client();
    cmd!(c, "RQ.MENQUEUE", "q", "JOBS", 7, 0, 1, 2, 3, 4, 5, 6);
    for (number, waiter) in waiters.iter_mut().take(7).enumerate() {
        assert_eq!(served_one(waiter).text(), number.to_string());
    }
    for waiter in &mut waiters[7..] {
        assert!(waiter.read_within(ms(20)).is_none());
    }
    assert_eq!(server.info_number("blocked_clients"), 3);
}

fn one_waiter_takes_as_many_as_it_asked(lab: &Lab) {
    let server = lab.server();
    let mut waiter = waiting_claim_with(&server, "q", "w", 0, &["COUNT", "3"]);
    cmd!(server.client(), "RQ.MENQUEUE", "q", "JOBS", 5, 0, 1, 2, 3, 4);
    let taken: Vec<String> = served(&mut waiter).iter().map(Job::text).collect();
    assert_eq!(taken, ["0", "1", "2"]);
}

fn waiting_on_several_queues(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    for queue in ["a", "b", "c"] {
        let mut waiter = server.client();
        send!(waiter, "RQ.MCLAIM", 3, "a", "b", "c", "w", "BLOCK", 0);
        until_blocked(&server, 1);
        enqueue(&mut c, queue, "x");
        let reply = waiter.read();
        assert_eq!(reply.list()[0].text(), queue);
        assert_eq!(jobs(&reply.list()[1]).len(), 1);
        // It waits nowhere any more.
        for queue in ["a", "b", "c"] {
            enqueue(&mut c, queue, "y");
            assert_eq!(counts(&mut c, queue).ready, 1);
        }
        assert!(waiter.read_within(ms(20)).is_none());
        cmd!(c, "FLUSHALL");
    }
    let mut waiter = server.client();
    assert!(cmd!(waiter, "RQ.MCLAIM", 2, "a", "b", "w", "BLOCK", 50).is_nil());
}

fn waiting_on_a_queue_that_does_not_exist(lab: &Lab) {
    let server = lab.server();
    let mut waiter = waiting_claim(&server, "q", "w", 0);
    let mut c = server.client();
    assert_eq!(cmd!(c, "EXISTS", "q").int(), 0, "waiting makes no key");
    cmd!(c, "RQ.QUEUE.SET", "q", "LEASE", 12_345);
    enqueue(&mut c, "q", "x");
    served_one(&mut waiter);
}

fn client_unblock(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let mut waiter = server.client();
    let id = waiter.id();
    for how in ["TIMEOUT", "ERROR"] {
        send!(waiter, "RQ.CLAIM", "q", "w", "BLOCK", 0);
        until_blocked(&server, 1);
        assert_eq!(cmd!(c, "CLIENT", "UNBLOCK", id, how).int(), 1);
        let reply = waiter.read();
        match how {
            "TIMEOUT" => assert!(reply.is_nil(), "{reply:?}"),
            _ => assert_eq!(reply.error().word(), "UNBLOCKED"),
        }
        // Nothing is handed to a wait that has ended.
        enqueue(&mut c, "q", "x");
        assert_eq!(counts(&mut c, "q").ready, 1);
        assert!(waiter.read_within(ms(20)).is_none());
        let job = claim(&mut waiter, "q", "w");
        ack(&mut waiter, "q", &job);
    }
}

fn client_kill_and_disconnect(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    for how in ["kill", "disconnect"] {
        let mut waiter = server.client();
        let id = waiter.id();
        send!(waiter, "RQ.CLAIM", "q", "w", "BLOCK", 0);
        until_blocked(&server, 1);
        match how {
            "kill" => assert_eq!(cmd!(c, "CLIENT", "KILL", "ID", id).int(), 1),
            _ => drop(waiter),
        }
        until_blocked(&server, 0);
        enqueue(&mut c, "q", "x");
        assert_eq!(counts(&mut c, "q").ready, 1, "not handed to a client that is gone");
        let job = claim(&mut c, "q", "w");
        assert_eq!(job.delivery, 1);
        ack(&mut c, "q", &job);
    }
}

/// The client is gone between the grant and the reply: the job goes back at once and costs nothing.
fn killed_between_grant_and_reply(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    for how in [
        "enqueue, kill",
        "kill, enqueue",
        "one transaction",
        "kill first in a transaction",
        "a script, then kill",
    ] {
        let mut waiter = server.client();
        let client = waiter.id();
        send!(waiter, "RQ.CLAIM", "q", "w", "BLOCK", 0, "LEASE", 3_600_000, "COUNT", 5);
        until_blocked(&server, 1);
        let kill = args!["CLIENT", "KILL", "ID", client];
        let enqueue = args!["RQ.ENQUEUE", "q", "x", "CRASHES", 0];
        let script = args!["EVAL", "return redis.call('RQ.ENQUEUE', KEYS[1], 'x', 'CRASHES', '0')", 1, "q"];
        let (multi, exec) = (args!["MULTI"], args!["EXEC"]);
        let calls = match how {
            "enqueue, kill" => vec![enqueue, kill],
            "kill, enqueue" => vec![kill, enqueue],
            "one transaction" => vec![multi, enqueue, kill, exec],
            "kill first in a transaction" => vec![multi, kill, enqueue, exec],
            _ => vec![script, kill],
        };
        // In one packet, so that the server runs them in one go, before it writes any reply.
        c.send_bytes(&calls.iter().flat_map(|call| encode(call)).collect::<Vec<u8>>());
        for _ in &calls {
            assert!(!matches!(c.read(), Reply::Error(_)), "{how}");
        }
        until_counts(&mut c, "q", Counts { ready: 1, ..Counts::default() });
        let job = claim(&mut c, "q", "w");
        let facts = crate::common::job(&mut c, "q", &job.id).expect("it exists");
        assert_eq!((facts["crashes"].int(), facts["attempts"].int()), (0, 0), "{how}");
        ack(&mut c, "q", &job);
    }
}

fn half_closed_client(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let waiter = waiting_claim(&server, "q", "w", 0);
    waiter.close_sending_half();
    // To the server this is a client that left; the job must not be lost with it.
    until_blocked(&server, 0);
    enqueue(&mut c, "q", "x");
    assert_eq!(claim(&mut c, "q", "w").delivery, 1);
}

fn pipeline_behind_a_waiting_claim(lab: &Lab) {
    let server = lab.server();
    let mut waiter = server.client();
    send!(waiter, "RQ.CLAIM", "q", "w", "BLOCK", 0);
    send!(waiter, "RQ.CLAIM", "q", "w", "BLOCK", 0);
    send!(waiter, "ECHO", "after");
    until_blocked(&server, 1);
    let mut c = server.client();
    cmd!(c, "RQ.MENQUEUE", "q", "JOBS", 2, "1", "2");
    assert_eq!(served_one(&mut waiter).payload, b"1");
    assert_eq!(served_one(&mut waiter).payload, b"2");
    assert_eq!(waiter.read().text(), "after");
}

/// Waits go on when the key goes away: they are for the name, and whoever makes the queue anew serves them.
fn key_deleted_overwritten_renamed_moved_flushed(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    for how in ["DEL", "UNLINK", "SET", "RENAME", "MOVE", "FLUSHALL", "FLUSHDB ASYNC", "PEXPIRE"] {
        cmd!(c, "RQ.QUEUE.SET", "q", "LEASE", 60_000);
        let mut waiter = waiting_claim(&server, "q", "w", 0);
        match how {
            "DEL" | "UNLINK" => cmd!(c, how, "q"),
            "SET" => cmd!(c, "SET", "q", "a string"),
            "RENAME" => cmd!(c, "RENAME", "q", "elsewhere"),
            "MOVE" => cmd!(c, "MOVE", "q", 3),
            "FLUSHALL" => cmd!(c, "FLUSHALL"),
            "PEXPIRE" => cmd!(c, "PEXPIRE", "q", 1),
            _ => cmd!(c, "FLUSHDB", "ASYNC"),
        };
        until("the queue is gone", || {
            cmd!(c, "TYPE", "q").text() != "redis-rq1" && !cmd!(c, "TYPE", "q").text().starts_with("rq")
        });
        // The wait may end with nil or an error, or go on; it must not hang for ever nor swallow a job.
        let ended = waiter.read_within(ms(100));
        if how == "SET" {
            cmd!(c, "DEL", "q");
        }
        enqueue(&mut c, "q", "x");
        match ended {
            None => {
                let job = served_one(&mut waiter);
                assert_eq!(job.payload, b"x", "{how}");
            }
            Some(reply) => {
                assert!(reply.is_nil() || matches!(reply, Reply::Error(_)), "{how}: {reply:?}");
                assert_eq!(claim(&mut c, "q", "w").delivery, 1);
            }
        }
        cmd!(c, "FLUSHALL");
        drop(waiter);
        until_blocked(&server, 0);
    }
}

fn swapdb_brings_the_queue(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let mut other = server.client();
    cmd!(other, "SELECT", 1);
    enqueue(&mut other, "q", "x");
    let mut waiter = waiting_claim(&server, "q", "w", 0);
    cmd!(c, "SWAPDB", 0, 1);
    assert_eq!(served_one(&mut waiter).payload, b"x");
    // And takes it away.
    let mut waiter = waiting_claim(&server, "q", "w", 0);
    cmd!(c, "SWAPDB", 0, 1);
    enqueue(&mut other, "q", "in database 1");
    assert!(waiter.read_within(ms(100)).is_none());
    enqueue(&mut c, "q", "in database 0");
    assert_eq!(served_one(&mut waiter).payload, b"in database 0");
}

fn rename_move_restore_copy_bring_the_queue(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    for how in ["RENAME", "MOVE", "RESTORE", "COPY"] {
        cmd!(c, "FLUSHALL");
        let mut waiter = waiting_claim(&server, "q", "w", 0);
        match how {
            "MOVE" => {
                cmd!(c, "SELECT", 1);
                enqueue(&mut c, "q", how);
                cmd!(c, "MOVE", "q", 0);
                cmd!(c, "SELECT", 0);
            }
            _ => {
                enqueue(&mut c, "other", how);
                match how {
                    "RENAME" => cmd!(c, "RENAME", "other", "q"),
                    "COPY" => cmd!(c, "COPY", "other", "q"),
                    _ => {
                        let dump = cmd!(c, "DUMP", "other");
                        cmd!(c, "RESTORE", "q", 0, dump.bytes())
                    }
                };
            }
        }
        assert_eq!(served_one(&mut waiter).text(), how);
    }
}

fn demotion_ends_the_wait(lab: &Lab) {
    let primary = lab.server();
    let other = lab.server();
    let mut waiters: Vec<Client> =
        (0..20).map(|number| waiting_claim(&primary, "q", &format!("w{number}"), 0)).collect();
    cmd!(primary.client(), "REPLICAOF", "127.0.0.1", other.port);
    for waiter in &mut waiters {
        match waiter.try_read_within(PATIENCE) {
            Ok(Some(reply)) => assert_eq!(reply.error().word(), "UNBLOCKED"),
            Ok(None) => panic!("it still waits"),
            Err(_) => {}
        }
    }
    other.wait_for_sync(&primary);
    let mut c = other.client();
    enqueue(&mut c, "q", "x");
    other.wait_for_sync(&primary);
    assert_eq!(counts(&mut primary.client(), "q"), Counts { ready: 1, ..Counts::default() });
    let mut c = primary.client();
    assert_eq!(refused!(c, "RQ.CLAIM", "q", "w", "BLOCK", 0), "READONLY");
}

fn pause_holds_waiting_claims(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let mut waiter = waiting_claim(&server, "q", "w", 0);
    assert_eq!(cmd!(c, "RQ.PAUSE", "q").text(), "OK");
    enqueue(&mut c, "q", "1");
    cmd!(c, "RQ.ENQUEUE", "q", "2", "DELAY", 20);
    assert!(waiter.read_within(ms(150)).is_none());
    assert!(try_claim(&mut c, "q", "other").is_none());
    assert_eq!(cmd!(c, "RQ.RESUME", "q").text(), "OK");
    assert_eq!(served_one(&mut waiter).payload, b"1", "in the same call");
    // A pause that ends by itself.
    send!(waiter, "RQ.CLAIM", "q", "w", "BLOCK", 0);
    assert_eq!(served_one(&mut waiter).payload, b"2");
    let start = Instant::now();
    cmd!(c, "RQ.PAUSE", "q", "FOR", 300);
    enqueue(&mut c, "q", "3");
    send!(waiter, "RQ.CLAIM", "q", "w", "BLOCK", 0);
    assert_eq!(served_one(&mut waiter).payload, b"3");
    assert!(start.elapsed() >= ms(290), "{:?}", start.elapsed());
}

fn multi_and_scripts_do_not_wait(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    cmd!(c, "MULTI");
    cmd!(c, "RQ.CLAIM", "q", "w", "BLOCK", 0);
    cmd!(c, "RQ.MCLAIM", 2, "q", "r", "w", "BLOCK", 0);
    cmd!(c, "RQ.RESULT", "q", "j", "BLOCK", 0);
    let replies = cmd!(c, "EXEC");
    assert!(replies.list().iter().all(Reply::is_nil), "{replies:?}");
    let script = "return redis.call('RQ.CLAIM', KEYS[1], 'w', 'BLOCK', '0')";
    assert!(cmd!(c, "EVAL", script, 1, "q").is_nil());
    enqueue(&mut c, "q", "x");
    assert_eq!(jobs(&cmd!(c, "EVAL", script, 1, "q")).len(), 1);
    // A result that has not come yet is told as it stands.
    let id = enqueue(&mut c, "q", "x");
    let script = "return redis.call('RQ.RESULT', KEYS[1], ARGV[1], 'BLOCK', '0')";
    assert_eq!(cmd!(c, "EVAL", script, 1, "q", id).list()[0].text(), "ready");
}

fn a_transaction_serves_after_it(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let mut first = waiting_claim(&server, "q", "w1", 0);
    let mut second = waiting_claim(&server, "q", "w2", 0);
    cmd!(c, "MULTI");
    cmd!(c, "RQ.ENQUEUE", "q", "1");
    cmd!(c, "RQ.ENQUEUE", "q", "2");
    // Within the transaction nobody else comes between.
    cmd!(c, "RQ.CLAIM", "q", "inside");
    cmd!(c, "RQ.ENQUEUE", "q", "3");
    let replies = cmd!(c, "EXEC");
    assert_eq!(jobs(&replies.list()[2])[0].payload, b"1");
    assert_eq!(served_one(&mut first).payload, b"2");
    assert_eq!(served_one(&mut second).payload, b"3");
    let mut waiter = waiting_claim(&server, "q", "w", 0);
    cmd!(c, "EVAL", "return redis.call('RQ.ENQUEUE', KEYS[1], 'from a script')", 1, "q");
    assert_eq!(served_one(&mut waiter).payload, b"from a script");
}

fn a_redelivery_goes_to_the_last_asker(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    enqueue(&mut c, "q", "x");
    claim_for(&mut c, "q", "dead", 300);
    let mut early = waiting_claim(&server, "q", "early", 0);
    let mut late = waiting_claim(&server, "q", "late", 0);
    assert_eq!(served_one(&mut late).delivery, 2);
    assert!(early.read_within(ms(20)).is_none());
}

fn many_waiters_no_job_lost(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    let mut waiters: Vec<Client> = (0..200).map(|_| server.client()).collect();
    for (number, waiter) in waiters.iter_mut().enumerate() {
        send!(waiter, "RQ.CLAIM", "q", format!("w{number}"), "BLOCK", 0);
    }
    until_blocked(&server, 200);
    // Half of them go away while jobs come in.
    for number in 0..200 {
        enqueue(&mut c, "q", number);
        if number % 2 == 0 {
            drop(waiters.pop());
        }
    }
    let mut seen: Vec<i64> = Vec::new();
    for waiter in &mut waiters {
        if let Some(reply) = waiter.read_within(ms(2)) {
            seen.extend(jobs(&reply).iter().map(|job| job.text().parse::<i64>().unwrap()));
        }
    }
    let left = counts(&mut c, "q");
    assert_eq!(left.sum(), 200);
    // Nothing was handed out twice.
    let count = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), count);
}

/// Whoever else is on the server has a turn in between: a call does not serve everybody that waits.
fn many_are_served_a_few_at_a_time(lab: &Lab) {
    let server = lab.server();
    let mut c = server.client();
    cmd!(c, "RQ.PAUSE", "q");
    let mut waiters: Vec<Client> = (0..300).map(|_| waiting_claim(&server, "q", "w", 0)).collect();
    for number in 0..300 {
        enqueue(&mut c, "q", number);
    }
    // Both in one packet: nothing comes between them.
    c.send_bytes(b"RQ.RESUME q\r\nRQ.LIST q active COUNT 1000\r\n");
    assert_eq!(c.read().text(), "OK");
    let active = c.read().list()[1].list().len();
    assert!((1..=50).contains(&active), "{active} served in one call");
    // The others follow by themselves.
    for waiter in &mut waiters {
        served_one(waiter);
    }
    assert_eq!(counts(&mut c, "q"), Counts { active: 300, ..Counts::default() });
}

fn waiting_claims_of_other_databases(lab: &Lab) {
    let server = lab.server();
    let mut one = server.client();
    cmd!(one, "SELECT", 1);
    send!(one, "RQ.CLAIM", "q", "w", "BLOCK", 0);
    let mut zero = waiting_claim(&server, "q", "w", 0);
    until_blocked(&server, 2);
    let mut c = server.client();
    enqueue(&mut c, "q", "zero");
    assert_eq!(served_one(&mut zero).payload, b"zero");
    assert!(one.read_within(ms(20)).is_none());
    cmd!(c, "SELECT", 1);
    cmd!(c, "RQ.ENQUEUE", "q", "one", "DELAY", 50);
    assert_eq!(served_one(&mut one).payload, b"one");
}

fn resp3_waits_too(lab: &Lab) {
    let server = lab.server();
    let mut waiter = server.client3();
    send!(waiter, "RQ.CLAIM", "q", "w", "BLOCK", 0, "FULL");
    until_blocked(&server, 1);
    enqueue(&mut server.client(), "q", "x");
    let reply = waiter.read();
    assert!(matches!(reply.list()[0], Reply::Map(_)), "{reply:?}");
    assert!(cmd!(waiter, "RQ.CLAIM", "q", "w", "BLOCK", 10).is_nil());
}
