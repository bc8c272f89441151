//! A Redis Cluster on this machine, and a client that finds its way in it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::{Client, Lab, PATIENCE, Reply, Server, eventually, until};

/// Primaries, and a replica of each.
pub struct Cluster {
    /// First the primaries, in the order of their slots; then their replicas in the same order.
    pub nodes: Vec<Server>,
}

/// Number of slots in any cluster.
const SLOTS: usize = 16_384;

impl Cluster {
    #[track_caller]
    pub fn new(lab: &Lab, primaries: usize) -> Self {
        let config = [
            ("cluster-enabled", "yes"),
            ("cluster-config-file", "nodes.conf"),
            ("cluster-require-full-coverage", "no"),
            ("cluster-node-timeout", "2000"),
            ("cluster-replica-validity-factor", "0"),
        ];
        let nodes: Vec<Server> = (0..2 * primaries).map(|_| lab.server_with(&config)).collect();
        let cluster = Self { nodes };
        for (number, node) in cluster.nodes.iter().enumerate() {
            let mut c = node.client();
            crate::cmd!(c, "CLUSTER", "SET-CONFIG-EPOCH", number + 1);
            if number < primaries {
                let bound = |part: usize| SLOTS * part / primaries;
                crate::cmd!(c, "CLUSTER", "ADDSLOTSRANGE", bound(number), bound(number + 1) - 1);
            }
            for other in &cluster.nodes[..number] {
                crate::cmd!(c, "CLUSTER", "MEET", "127.0.0.1", other.port);
            }
        }
        until("all nodes know each other", || {
            cluster
                .nodes
                .iter()
                .all(|node| cluster.facts(node, "cluster_known_nodes") == (2 * primaries).to_string())
        });
        for number in 0..primaries {
            let id = cluster.id(number);
            let mut c = cluster.nodes[primaries + number].client();
            eventually("it becomes a replica", || match c.call(crate::args!["CLUSTER", "REPLICATE", id]) {
                Reply::Error(_) => None,
                _ => Some(()),
            });
        }
        for number in 0..primaries {
            cluster.nodes[number].wait_for_sync(&cluster.nodes[primaries + number]);
        }
        cluster.wait_until_well();
        cluster
    }

    /// The id by which the nodes know it.
    pub fn id(&self, number: usize) -> String {
        crate::cmd!(self.nodes[number].client(), "CLUSTER", "MYID").text()
    }

    fn facts(&self, node: &Server, name: &str) -> String {
        let info = crate::cmd!(node.client(), "CLUSTER", "INFO").text();
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_default().trim().to_string()
    }

    #[track_caller]
    fn wait_until_well(&self) {
        until("the cluster is well", || {
            self.nodes.iter().all(|node| {
                self.facts(node, "cluster_state") == "ok"
                    && self.facts(node, "cluster_slots_ok") == SLOTS.to_string()
            })
        });
    }

    /// Which node, by its number, a queue lives on, as the first node sees it that answers.
    #[track_caller]
    pub fn home(&self, queue: &str) -> usize {
        let mut client = self.client();
        client.call(queue, crate::args!["RQ.STATS", queue]);
        let port = client.homes[queue];
        self.nodes.iter().position(|node| node.port == port).expect("a node of this cluster")
    }

    pub fn client(&self) -> Roaming {
        Roaming {
            ports: self.nodes.iter().map(|node| node.port).collect(),
            links: HashMap::new(),
            homes: HashMap::new(),
        }
    }

    /// Moves the slot of a queue with all its keys, as a resharding does, step by step; `between` is called after the
    /// keys have moved and before the nodes are told that the slot has.
    #[track_caller]
    pub fn move_slot(&self, queue: &str, from: usize, to: usize, between: impl FnOnce()) {
        let (mut source, mut target) = (self.nodes[from].client(), self.nodes[to].client());
        let slot = crate::cmd!(source, "CLUSTER", "KEYSLOT", queue).int();
        let (from_id, to_id) = (self.id(from), self.id(to));
        crate::cmd!(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", from_id);
        crate::cmd!(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", to_id);
        loop {
            let keys = crate::cmd!(source, "CLUSTER", "GETKEYSINSLOT", slot, 10).texts();
            if keys.is_empty() {
                break;
            }
            let mut call = crate::args!["MIGRATE", "127.0.0.1", self.nodes[to].port, "", 0, 5000, "KEYS"];
            call.extend(keys.into_iter().map(String::into_bytes));
            source.run(call);
        }
        between();
        for client in [&mut target, &mut source] {
            crate::cmd!(client, "CLUSTER", "SETSLOT", slot, "NODE", to_id);
        }
    }
}

/// A client that goes where it is sent, by `MOVED` and `ASK`, and goes on when nodes fail.
pub struct Roaming {
    ports: Vec<u16>,
    links: HashMap<u16, Client>,
    /// Where a queue answered last.
    pub homes: HashMap<String, u16>,
}

impl Roaming {
    /// Runs a command that must succeed, wherever the queue is.
    #[track_caller]
    pub fn run(&mut self, queue: &str, args: Vec<Vec<u8>>) -> Reply {
        match self.call(queue, args) {
            Reply::Error(error) => panic!("refused: {}", error.text()),
            reply => reply,
        }
    }

    /// Runs a command and gives whatever the queue's home replies.
    #[track_caller]
    pub fn call(&mut self, queue: &str, args: Vec<Vec<u8>>) -> Reply {
        let mut turn = 0;
        let (port, reply) = eventually("the queue's node answers", || {
            let known = self.homes.get(queue).copied();
            let port = known.unwrap_or_else(|| {
                turn += 1;
                self.ports[turn % self.ports.len()]
            });
            let reply = self.ask(port, &args, false);
            let Some(Reply::Error(error)) = &reply else {
                if reply.is_none() {
                    self.homes.remove(queue);
                }
                return reply.map(|reply| (port, reply));
            };
            let text = error.text();
            let target = || text.rsplit(':').next().and_then(|port| port.parse::<u16>().ok());
            match error.word().as_str() {
                "MOVED" => {
                    self.homes.insert(queue.into(), target()?);
                    None
                }
                "ASK" => {
                    let target = target()?;
                    self.ask(target, &args, true).map(|reply| (target, reply))
                }
                "CLUSTERDOWN" | "TRYAGAIN" | "READONLY" | "UNBLOCKED" | "LOADING" | "MASTERDOWN" => {
                    self.homes.remove(queue);
                    None
                }
                _ => reply.map(|reply| (port, reply)),
            }
        });
        self.homes.insert(queue.into(), port);
        reply
    }

    fn ask(&mut self, port: u16, args: &[Vec<u8>], asking: bool) -> Option<Reply> {
        let link = match self.links.entry(port) {
            Entry::Occupied(link) => link.into_mut(),
            Entry::Vacant(place) => place.insert(Client::try_connect(port)?),
        };
        let mut talk = || {
            if asking {
                link.try_send(crate::args!["ASKING"]).ok()?;
                link.try_read_within(PATIENCE).ok()??;
            }
            link.try_send(args.to_vec()).ok()?;
            link.try_read_within(PATIENCE).ok()?
        };
        let reply = talk();
        if reply.is_none() {
            self.links.remove(&port);
        }
        reply
    }
}
