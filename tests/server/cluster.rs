//! A Redis Cluster of three primaries and three replicas (C62): queues spread over it, their nodes fail, are relieved, and
//! hand their slots to each other, while workers wait, leases are held and jobs are delayed.

use std::collections::BTreeSet;

use crate::common::*;
use crate::{args, cmd, refused, send, tests};

pub const TESTS: &[Test] = tests![
    queues_spread_and_outlive_their_nodes,
    an_orderly_change_of_roles,
    a_slot_moves_with_everything_open,
    claims_of_several_queues,
    many_waits_for_slots_that_left,
];

fn queues_spread_and_outlive_their_nodes(lab: &Lab) {
    let mut cluster = Cluster::new(lab, 3);
    let mut c = cluster.client();
    let queues: Vec<String> = (0..12).map(|number| format!("queue {number}")).collect();
    let mut serials = Vec::new();
    let mut held = Vec::new();
    for queue in &queues {
        for number in 0..10 {
            serials.push(c.run(queue, args!["RQ.ENQUEUE", queue, number]).text());
        }
        c.run(queue, args!["RQ.ENQUEUE", queue, "delayed", "DELAY", 3000]);
        c.run(queue, args!["RQ.ENQUEUE", queue, "lapses", "PRIORITY", 9]);
        let lapses = jobs(&c.run(queue, args!["RQ.CLAIM", queue, "gone", "LEASE", 3000])).remove(0);
        let job = jobs(&c.run(queue, args!["RQ.CLAIM", queue, "w", "LEASE", 3_600_000])).remove(0);
        assert_eq!((lapses.text(), job.text()), ("lapses".into(), "0".into()));
        serials.extend([lapses.token, job.token.clone()]);
        held.push(job);
    }
    let homes: BTreeSet<usize> = queues.iter().map(|queue| cluster.home(queue)).collect();
    assert_eq!(homes.into_iter().collect::<Vec<_>>(), [0, 1, 2], "each primary has some");
    // Of one queue, no id and no token comes twice; of different nodes they may be alike.
    for of_queue in serials.chunks(12) {
        assert_eq!(of_queue.iter().collect::<BTreeSet<_>>().len(), 12);
    }
    for number in 0..3 {
        cluster.nodes[number].wait_for_sync(&cluster.nodes[3 + number]);
    }
    cluster.nodes[0].kill9();
    let dead = cluster.nodes[0].port;
    let mut c = cluster.client();
    for (queue, job) in queues.iter().zip(&held) {
        assert_eq!(
            c.run(queue, args!["RQ.ACK", queue, job.id, job.token]).int(),
            1,
            "{queue}: the token is good"
        );
        assert_ne!(c.homes[queue], dead);
        until("the delay and the lease end", || {
            let stats = c.run(queue, args!["RQ.STATS", queue]);
            Counts::of(&stats) == Counts { ready: 11, ..Counts::default() }
        });
        let mut last = serial(&job.token);
        let mut seen = BTreeSet::new();
        for job in jobs(&c.run(queue, args!["RQ.CLAIM", queue, "w", "COUNT", 100])) {
            assert!(seen.insert(job.text()));
            assert!(serial(&job.token) > last, "{queue}: {} after {last:?}", job.token);
            last = serial(&job.token);
        }
        assert_eq!(seen.len(), 11, "{queue}: {seen:?}");
    }
}

fn an_orderly_change_of_roles(lab: &Lab) {
    let cluster = Cluster::new(lab, 3);
    let mut c = cluster.client();
    let queue = "mail";
    let home = cluster.home(queue);
    let (primary, replica) = (&cluster.nodes[home], &cluster.nodes[3 + home]);
    c.run(queue, args!["RQ.ENQUEUE", queue, "held", "ID", "held"]);
    let job = jobs(&c.run(queue, args!["RQ.CLAIM", queue, "w", "LEASE", 3_600_000])).remove(0);
    c.run(queue, args!["RQ.ENQUEUE", queue, "delayed", "DELAY", 1500]);
    let mut claim = waiting_claim(primary, queue, "w2", 0);
    let (mut result, mut reader) = (primary.client(), primary.client());
    send!(result, "RQ.RESULT", queue, "held", "BLOCK", 0);
    send!(reader, "RQ.READ", queue, "held", "BLOCK", 0);
    until_blocked(primary, 3);
    primary.wait_for_sync(replica);
    cmd!(replica.client(), "CLUSTER", "FAILOVER");
    until("the roles have changed", || replica.info("role") == "master" && primary.info("role") == "slave");
    for waiter in [&mut claim, &mut result, &mut reader] {
        // The server itself sends everybody away who waits on a primary that becomes a replica.
        match waiter.try_read_within(PATIENCE) {
            Ok(Some(Reply::Error(error))) => assert_eq!(error.word(), "UNBLOCKED"),
            Ok(other) => panic!("{other:?}"),
            Err(_) => {}
        }
    }
    assert_eq!(
        c.run(queue, args!["RQ.EXTEND", queue, "w", "LEASE", 3_600_000, "held", job.token]).texts(),
        ["ok"]
    );
    let next = jobs(&c.run(queue, args!["RQ.CLAIM", queue, "w2", "BLOCK", 0]));
    assert_eq!(next[0].text(), "delayed");
    assert_eq!(c.homes[queue], replica.port);
    replica.wait_for_sync(primary);
    assert_eq!(primary.digest(queue), replica.digest(queue));
    until_blocked(primary, 0);
}

fn a_slot_moves_with_everything_open(lab: &Lab) {
    let cluster = Cluster::new(lab, 3);
    let mut c = cluster.client();
    let queue = "mail";
    let (mut from, mut to) = (cluster.home(queue), 0);
    for round in 0..2 {
        to = if round == 0 { (from + 1) % 3 } else { from };
        if round == 1 {
            // And back again.
            from = cluster.home(queue);
        }
        let (source, target) = (&cluster.nodes[from], &cluster.nodes[to]);
        c.run(queue, args!["RQ.ENQUEUE", queue, "held", "ID", "held", "REPLACE", "TTL", 60_000]);
        let job = jobs(&c.run(queue, args!["RQ.CLAIM", queue, "w", "LEASE", 3_600_000])).remove(0);
        c.run(queue, args!["RQ.ENQUEUE", queue, "delayed", "DELAY", 2500]);
        let mut claim = waiting_claim(source, queue, "w2", 0);
        let (mut result, mut reader) = (source.client(), source.client());
        send!(result, "RQ.RESULT", queue, "held", "BLOCK", 0);
        c.run(queue, args!["RQ.EMIT", queue, "held", job.token, "a"]);
        send!(reader, "RQ.READ", queue, "held", "FROM", "1-1", "BLOCK", 0);
        until_blocked(source, 3);
        cluster.move_slot(queue, from, to, || {
            // On the way: the key is over there, and whoever asks here is sent after it.
            let mut here = source.client();
            assert_eq!(refused!(here, "RQ.STATS", queue), "ASK");
            assert_eq!(refused!(here, "RQ.CLAIM", queue, "w2", "BLOCK", 0), "ASK");
            let mut there = target.client();
            assert_eq!(refused!(there, "RQ.STATS", queue), "MOVED");
            cmd!(there, "ASKING");
            assert_eq!(counts_of(&cmd!(there, "RQ.STATS", queue)), (1, 1));
            cmd!(there, "ASKING");
            assert_eq!(
                cmd!(there, "RQ.EXTEND", queue, "w", "LEASE", 3_600_000, "held", job.token).texts(),
                ["ok"]
            );
        });
        // Nobody waits for ever where nothing will ever come. Nothing is an answer to a claim; to the question for a
        // result or for an output it would be wrong, so there the answer is to ask again.
        assert!(claim.read().is_nil());
        assert_eq!(result.read().error().word(), "TRYAGAIN");
        assert_eq!(reader.read().error().word(), "TRYAGAIN");
        until_blocked(source, 0);
        let mut waiter = target.client();
        send!(waiter, "RQ.CLAIM", queue, "w2", "BLOCK", 0);
        let delayed = jobs(&waiter.read()).remove(0);
        assert_eq!(
            (delayed.text(), c.run(queue, args!["RQ.ACK", queue, delayed.id, delayed.token]).int()),
            ("delayed".into(), 1)
        );
        let mut reader = target.client();
        send!(reader, "RQ.READ", queue, "held", "FROM", "1-1", "BLOCK", 0);
        until_blocked(target, 1);
        c.run(queue, args!["RQ.EMIT", queue, "held", job.token, "b"]);
        assert_eq!(reader.read().list()[0].text(), "1-2");
        send!(waiter, "RQ.RESULT", queue, "held", "BLOCK", 0);
        until_blocked(target, 1);
        assert_eq!(c.run(queue, args!["RQ.ACK", queue, "held", job.token, "RESULT", "r"]).int(), 1);
        assert_eq!(waiter.read().list()[1].text(), "r");
        let next = c.run(queue, args!["RQ.ENQUEUE", queue, "x"]).text();
        assert!(serial(&next) > serial(&job.token), "ids stay above every token that came with the queue");
        let next = jobs(&c.run(queue, args!["RQ.CLAIM", queue, "w3"])).remove(0);
        c.run(queue, args!["RQ.ACK", queue, next.id, next.token]);
        assert_eq!(cluster.home(queue), to);
        // The replicas have followed, and the indexes know.
        target.wait_for_sync(&cluster.nodes[3 + to]);
        assert_eq!(target.digest(queue), cluster.nodes[3 + to].digest(queue));
        until("the old node forgets it", || source.info_number("rq_queues") == 0);
        assert_eq!(target.info_number("rq_queues"), 1);
    }
    assert_ne!(from, to);
}

/// An id or a token as numbers.
fn serial(text: &str) -> (u64, u64) {
    let (millis, number) = text.split_once('-').expect("an id of the server's own");
    (millis.parse().expect("a number"), number.parse().expect("a number"))
}

/// Delayed and active.
fn counts_of(stats: &Reply) -> (i64, i64) {
    let counts = Counts::of(stats);
    (counts.delayed, counts.active)
}

fn claims_of_several_queues(lab: &Lab) {
    let cluster = Cluster::new(lab, 2);
    let mut c = cluster.client();
    // Of different slots: by one node or by two, a clear error, and nothing happens.
    for queues in [["a", "b"], ["mail 1", "mail 2"], ["{x}", "{y}"]] {
        for queue in queues {
            c.run(queue, args!["RQ.ENQUEUE", queue, "x"]);
        }
        for node in &cluster.nodes[..2] {
            let word = refused!(node.client(), "RQ.MCLAIM", 2, queues[0], queues[1], "w");
            assert_eq!(word, "CROSSSLOT");
        }
        for queue in queues {
            assert_eq!(Counts::of(&c.run(queue, args!["RQ.STATS", queue])).ready, 1);
        }
    }
    // One hot queue as several keys of one slot.
    for number in 0..4 {
        let queue = format!("{{hot}}{number}");
        c.run(&queue, args!["RQ.ENQUEUE", queue, number]);
    }
    let mut seen = Vec::new();
    for _ in 0..4 {
        let reply = c.run("{hot}0", args!["RQ.MCLAIM", 4, "{hot}3", "{hot}2", "{hot}1", "{hot}0", "w"]);
        assert!(reply.list()[0].text().starts_with("{hot}"));
        seen.push(jobs(&reply.list()[1]).remove(0).text());
    }
    assert_eq!(seen, ["3", "2", "1", "0"]);
    let mut waiter = cluster.nodes[cluster.home("{hot}0")].client();
    send!(waiter, "RQ.MCLAIM", 2, "{hot}1", "{hot}0", "w", "BLOCK", 0);
    c.run("{hot}0", args!["RQ.ENQUEUE", "{hot}0", "late"]);
    assert_eq!(waiter.read().list()[0].text(), "{hot}0");
}

/// However many queues are awaited on a node, all waits for those that left it end.
fn many_waits_for_slots_that_left(lab: &Lab) {
    let cluster = Cluster::new(lab, 2);
    let home = cluster.home("{stays}0");
    let node = &cluster.nodes[home];
    let mut c = node.client();
    let mut stay: Vec<Client> = (0..5)
        .map(|block| {
            let mut client = node.client();
            let mut call = args!["RQ.MCLAIM", 1000];
            call.extend((0..1000).map(|number| format!("{{stays}}{block} {number}").into_bytes()));
            call.extend(args!["w", "BLOCK", 0]);
            client.send(call);
            client
        })
        .collect();
    // A tag whose slot is on the same node.
    let tag =
        (0..100).map(|number| format!("leaves{number}")).find(|tag| cluster.home(tag) == home).expect("one");
    let slot = cmd!(c, "CLUSTER", "KEYSLOT", tag).int();
    let mut leave: Vec<Client> = (0..50)
        .map(|number| {
            let mut client = node.client();
            send!(client, "RQ.CLAIM", format!("{{{tag}}}{number}"), "w", "BLOCK", 0);
            client
        })
        .collect();
    until_blocked(node, 55);
    let other = 1 - home;
    let id = cluster.id(other);
    for number in [other, home] {
        cmd!(cluster.nodes[number].client(), "CLUSTER", "SETSLOT", slot, "NODE", id);
    }
    for client in &mut leave {
        assert!(client.read().is_nil());
    }
    assert!(stay.iter_mut().all(|client| !client.is_answered()));
    until_blocked(node, 5);
}
