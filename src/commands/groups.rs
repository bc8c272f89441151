//! Groups and tenants: `RQ.GROUP.SET`, `RQ.GROUP.GET`, `RQ.GROUP.LIST`, `RQ.TENANT.SET`, `RQ.TENANT.GET`,
//! `RQ.TENANT.LIST`.

use super::args::{self, BURST, Options, Quoted, Range, STRAY_BURST, Source, Wrong};
use super::docs::{self, Docs};
use super::fields::begin_page;
use super::operators::LIST_COUNT_DEFAULT;
use super::views;
use super::{Access, Keys, Row, entry};
use crate::queue::{GroupName, GroupPatch, Op, TenantPatch};
use crate::server::call::{Call, Missing};
use crate::server::reply::Refusal;

/// The commands of this file.
pub const ROWS: &[Row] = &[
    Row {
        name: c"RQ.GROUP.SET",
        entry: entry!(set_group, c"rq.group.set"),
        flags: c"write fast",
        arity: -5,
        keys: Keys::One,
        access: Access::Changes,
        categories: c"write fast",
        docs: &Docs {
            summary: "Changes settings of a group, making queue and group if there are none.",
            complexity: "O(log G) with G the groups",
            since: "0.1.0",
            reply: "OK",
            args: &[
                docs::QUEUE,
                docs::text("group"),
                docs::TENANT,
                docs::option(
                    "CONCURRENCY",
                    docs::one_of("limit", &[docs::integer("n"), docs::NONE, docs::DEFAULT]),
                ),
                docs::option("RATE", docs::one_of("limit", &[docs::CLAIMS, docs::NONE, docs::DEFAULT])),
                docs::option("BACKOFF", docs::one_of("wait", &[docs::BACKOFF_VALUE, docs::DEFAULT])),
                docs::option(
                    "ORDERED",
                    docs::one_of("ordered", &[docs::token("yes"), docs::token("no"), docs::token("default")]),
                ),
            ],
        },
    },
    Row {
        name: c"RQ.GROUP.GET",
        entry: entry!(get_group, c"rq.group.get"),
        flags: c"readonly fast",
        arity: -3,
        keys: Keys::One,
        access: Access::Reads,
        categories: c"read fast",
        docs: &Docs {
            summary: "Tells everything about one group: its jobs, why it is not served, its settings.",
            complexity: "O(P) with P the priorities in use",
            since: "0.1.0",
            reply: "map, or with JSON one JSON text; nil for an unknown group",
            args: &[docs::QUEUE, docs::text("group"), docs::TENANT, docs::JSON],
        },
    },
    Row {
        name: c"RQ.GROUP.LIST",
        entry: entry!(list_groups, c"rq.group.list"),
        flags: c"readonly",
        arity: -2,
        keys: Keys::One,
        access: Access::Reads,
        categories: c"read",
        docs: &Docs {
            summary: "Lists groups, of all tenants or of one, with why each is not served, page by page.",
            complexity: "O(M + log G) with M the groups looked at, at most 10,000, and G all of them",
            since: "0.1.0",
            reply: "[next cursor, array of maps]; the cursor is 0 on the last page",
            args: &[docs::QUEUE, docs::TENANT, docs::option("CURSOR", docs::integer("cursor")), docs::COUNT],
        },
    },
    Row {
        name: c"RQ.TENANT.SET",
        entry: entry!(set_tenant, c"rq.tenant.set"),
        flags: c"write fast",
        arity: -5,
        keys: Keys::One,
        access: Access::Changes,
        categories: c"write fast",
        docs: &Docs {
            summary: "Changes settings of a tenant, making queue and tenant if there are none.",
            complexity: "O(log T) with T the tenants",
            since: "0.1.0",
            reply: "OK",
            args: &[
                docs::QUEUE,
                docs::text("tenant"),
                docs::option("WEIGHT", docs::integer("n")),
                docs::CONCURRENCY,
                docs::RATE,
            ],
        },
    },
    Row {
        name: c"RQ.TENANT.GET",
        entry: entry!(get_tenant, c"rq.tenant.get"),
        flags: c"readonly fast",
        arity: -3,
        keys: Keys::One,
        access: Access::Reads,
        categories: c"read fast",
        docs: &Docs {
            summary: "Tells everything about one tenant: its settings, and why it is not served.",
            complexity: "O(1)",
            since: "0.1.0",
            reply: "map, or with JSON one JSON text; nil for an unknown tenant",
            args: &[docs::QUEUE, docs::text("tenant"), docs::JSON],
        },
    },
    Row {
        name: c"RQ.TENANT.LIST",
        entry: entry!(list_tenants, c"rq.tenant.list"),
        flags: c"readonly",
        arity: -2,
        keys: Keys::One,
        access: Access::Reads,
        categories: c"read",
        docs: &Docs {
            summary: "Lists tenants, with their settings and why each is not served, page by page.",
            complexity: "O(M + log T) with M the tenants in the page and T all of them",
            since: "0.1.0",
            reply: "[next cursor, array of maps]; the cursor is 0 on the last page",
            args: &[docs::QUEUE, docs::option("CURSOR", docs::integer("cursor")), docs::COUNT],
        },
    },
];

/// `RQ.GROUP.SET queue group [TENANT t] option value [option value ...]`
pub fn set_group(call: &mut Call<'_>) -> Result<(), Refusal> {
    let op = parse_group_set(call.args())?;
    call.write(&op, Missing::Create, |_, out| out.word("OK"))
}

const GROUP_SET: &[&str] = &["TENANT", "CONCURRENCY", "RATE", "BACKOFF", "ORDERED", BURST];
/// Without the tenant and the word that only follows a rate.
const GROUP_SETTINGS: &[&str] = match GROUP_SET {
    [_, settings @ .., _] => settings,
    _ => &[],
};
const ORDERED: &[&str] = &["yes", "no", "default"];

fn parse_group_set<'a, S: Source<'a>>(args: S) -> Result<Op<'a>, Wrong> {
    let group = args::name("group", args.get(2).ok_or(Wrong::Arity)?)?;
    let (mut tenant, mut patch) = (&b""[..], GroupPatch::default());
    let mut options = Options::new(args, 3, GROUP_SET);
    while let Some(option) = options.next()? {
        match option {
            "TENANT" => tenant = options.name()?,
            "CONCURRENCY" if options.is_default() => patch.concurrency = Some(None),
            "CONCURRENCY" => {
                patch.concurrency = Some(Some(options.concurrency(Range::CONCURRENCY.or_default())?));
            }
            "RATE" if options.is_default() => patch.rate = Some(None),
            "RATE" => patch.rate = Some(Some(options.rate(Range::RATE.or_default())?)),
            "BACKOFF" if options.is_default() => patch.backoff = Some(None),
            "BACKOFF" => patch.backoff = Some(Some(options.backoff()?)),
            "ORDERED" => {
                patch.ordered =
                    Some([Some(true), Some(false), None].get(options.word(ORDERED)?).copied().flatten())
            }
            BURST => return Err(STRAY_BURST),
            _ => return Err(options.unhandled()),
        }
    }
    if patch == GroupPatch::default() {
        return Err(Wrong::NoneOf(GROUP_SETTINGS));
    }
    Ok(Op::SetGroup { name: GroupName { tenant, group }, patch })
}

/// `RQ.GROUP.GET queue group [TENANT t] [JSON]`
pub fn get_group(call: &mut Call<'_>) -> Result<(), Refusal> {
    let args = call.args();
    let group = args::name("group", args.get(2).ok_or(Wrong::Arity)?)?;
    let (mut tenant, mut json) = (&b""[..], false);
    let mut options = Options::new(args, 3, GROUP_GET);
    while let Some(option) = options.next()? {
        match option {
            "TENANT" => tenant = options.name()?,
            "JSON" => json = true,
            _ => return Err(options.unhandled().into()),
        }
    }
    call.read(|seen, out| {
        let found = seen.and_then(|seen| Some((seen, seen.queue.group(GroupName { tenant, group })?)));
        match found {
            None => out.null(),
            Some((seen, group)) => views::group_with_settings(seen, group).reply(json, out),
        }
    })
}

const GROUP_GET: &[&str] = &["TENANT", "JSON"];

/// `RQ.GROUP.LIST queue [TENANT t] [CURSOR c] [COUNT n]`
pub fn list_groups(call: &mut Call<'_>) -> Result<(), Refusal> {
    let request = parse_listing(call.args())?;
    call.read(|seen, out| {
        let (next, groups) = match seen {
            Some(seen) => seen.queue.list_groups(request.tenant, request.after, request.count),
            None => (None, Vec::new()),
        };
        begin_page(next.unwrap_or(0), groups.len(), out);
        for group in groups {
            if let Some(seen) = seen {
                views::group(seen, group).write(out);
            }
        }
    })
}

const GROUP_LIST: &[&str] = &["TENANT", "CURSOR", "COUNT"];

#[derive(Debug, PartialEq, Eq)]
struct Listing<'a> {
    tenant: Option<&'a [u8]>,
    /// The birth of the group looked at last.
    after: Option<u64>,
    count: usize,
}

fn parse_listing<'a, S: Source<'a>>(args: S) -> Result<Listing<'a>, Wrong> {
    let mut listing = Listing { tenant: None, after: None, count: LIST_COUNT_DEFAULT };
    let mut options = Options::new(args, 2, GROUP_LIST);
    while let Some(option) = options.next()? {
        match option {
            "TENANT" => listing.tenant = Some(options.name()?),
            // No group is born 0: that is the nameless tenant.
            "CURSOR" => listing.after = Some(cursor(options.value()?)?).filter(|&born| born > 0),
            "COUNT" => listing.count = options.count()?,
            _ => return Err(options.unhandled()),
        }
    }
    Ok(listing)
}

fn cursor(text: &[u8]) -> Result<u64, Wrong> {
    args::digits(text).ok_or_else(|| Wrong::Cursor(Quoted::new(text)))
}

/// `RQ.TENANT.LIST queue [CURSOR c] [COUNT n]`
pub fn list_tenants(call: &mut Call<'_>) -> Result<(), Refusal> {
    let (mut from, mut count) = (0, LIST_COUNT_DEFAULT);
    let mut options = Options::new(call.args(), 2, TENANT_LIST);
    while let Some(option) = options.next()? {
        match option {
            "CURSOR" => from = cursor(options.value()?)?,
            "COUNT" => count = options.count()?,
            _ => return Err(options.unhandled().into()),
        }
    }
    call.read(|seen, out| {
        // The cursor is the birth from which to go on: the nameless tenant's is 0.
        let (next, tenants) = match seen {
            Some(seen) => seen.queue.list_tenants(from, count),
            None => (None, Vec::new()),
        };
        begin_page(next.unwrap_or(0), tenants.len(), out);
        for tenant in tenants {
            if let Some(seen) = seen {
                views::tenant(seen, tenant).write(out);
            }
        }
    })
}

const TENANT_LIST: &[&str] = &["CURSOR", "COUNT"];

/// `RQ.TENANT.SET queue tenant option value [option value ...]`
pub fn set_tenant(call: &mut Call<'_>) -> Result<(), Refusal> {
    let op = parse_tenant_set(call.args())?;
    call.write(&op, Missing::Create, |_, out| out.word("OK"))
}

const TENANT_SET: &[&str] = &["WEIGHT", "CONCURRENCY", "RATE", BURST];
/// Without the word that only follows a rate.
const TENANT_SETTINGS: &[&str] = match TENANT_SET {
    [settings @ .., _] => settings,
    [] => &[],
};

fn parse_tenant_set<'a, S: Source<'a>>(args: S) -> Result<Op<'a>, Wrong> {
    let name = args::name("tenant", args.get(2).ok_or(Wrong::Arity)?)?;
    let mut patch = TenantPatch::default();
    let mut options = Options::new(args, 3, TENANT_SET);
    while let Some(option) = options.next()? {
        match option {
            "WEIGHT" => patch.weight = Some(options.weight()?),
            "CONCURRENCY" => patch.concurrency = Some(options.concurrency(Range::CONCURRENCY)?),
            "RATE" => patch.rate = Some(options.rate(Range::RATE)?),
            BURST => return Err(STRAY_BURST),
            _ => return Err(options.unhandled()),
        }
    }
    if patch == TenantPatch::default() {
        return Err(Wrong::NoneOf(TENANT_SETTINGS));
    }
    Ok(Op::SetTenant { name, patch })
}

/// `RQ.TENANT.GET queue tenant [JSON]`
pub fn get_tenant(call: &mut Call<'_>) -> Result<(), Refusal> {
    let args = call.args();
    let name = args::name("tenant", args.get(2).ok_or(Wrong::Arity)?)?;
    let json = super::operators::wants_json(args, 3)?;
    call.read(|seen, out| {
        let found = seen.and_then(|seen| Some((seen, seen.queue.tenant(name)?)));
        match found {
            None => out.null(),
            Some((seen, tenant)) => views::tenant(seen, tenant).reply(json, out),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::{Backoff, Rate};

    fn of(texts: &[&'static str]) -> &'static [&'static [u8]] {
        texts.iter().map(|text| text.as_bytes()).collect::<Vec<_>>().leak()
    }

    fn group(options: &[&'static str]) -> Result<Op<'static>, String> {
        let args = [&["RQ.GROUP.SET", "q", "g"], options].concat();
        parse_group_set(of(&args)).map_err(|wrong| wrong.to_string())
    }

    fn tenant(options: &[&'static str]) -> Result<Op<'static>, String> {
        let args = [&["RQ.TENANT.SET", "q", "t"], options].concat();
        parse_tenant_set(of(&args)).map_err(|wrong| wrong.to_string())
    }

    #[test]
    fn words_are_documented() {
        docs::check_words(ROWS, c"RQ.GROUP.SET", &[GROUP_SET, ORDERED].concat());
        docs::check_words(ROWS, c"RQ.GROUP.GET", GROUP_GET);
        docs::check_words(ROWS, c"RQ.GROUP.LIST", GROUP_LIST);
        docs::check_words(ROWS, c"RQ.TENANT.SET", TENANT_SET);
        docs::check_words(ROWS, c"RQ.TENANT.GET", &["JSON"]);
        docs::check_words(ROWS, c"RQ.TENANT.LIST", TENANT_LIST);
    }

    #[test]
    fn groups_are_set() {
        let set = |tenant, patch| Ok(Op::SetGroup { name: GroupName { tenant, group: b"g" }, patch });
        let words = ["ordered", "NO", "rate", "1", "5", "burst", "7", "TENANT", "t", "concurrency", "NONE"];
        let patch = GroupPatch {
            concurrency: Some(Some(None)),
            rate: Some(Some(Some(Rate { count: 1, period: 5, burst: 7 }))),
            backoff: None,
            ordered: Some(Some(false)),
        };
        assert_eq!(group(&words), set(b"t", patch));
        let words = ["CONCURRENCY", "default", "RATE", "default", "BACKOFF", "DEFAULT", "ORDERED", "default"];
        let patch = GroupPatch {
            concurrency: Some(None),
            rate: Some(None),
            backoff: Some(None),
            ordered: Some(None),
        };
        assert_eq!(group(&words), set(b"", patch));
        let words = ["RATE", "none", "BACKOFF", "5", "ORDERED", "yes", "CONCURRENCY", "0"];
        let patch = GroupPatch {
            concurrency: Some(Some(Some(0))),
            rate: Some(Some(None)),
            backoff: Some(Some(Backoff { base: 5, max: 3_600_000 })),
            ordered: Some(Some(true)),
        };
        assert_eq!(group(&words), set(b"", patch));
    }

    #[test]
    fn groups_refuse() {
        for (options, text) in [
            (&[][..], "nothing to do; give one of CONCURRENCY, RATE, BACKOFF, ORDERED"),
            (&["TENANT", "t"], "nothing to do; give one of CONCURRENCY, RATE, BACKOFF, ORDERED"),
            (&["TENANT", "", "ORDERED", "yes"], "TENANT must be a name of 1 to 512 bytes; it has 0"),
            (
                &["CONCURRENCY", "-1"],
                "CONCURRENCY must be an integer from 0 to 1000000, none or default, not '-1'",
            ),
            (&["RATE", "0", "1"], "RATE must be an integer from 1 to 1000000, none or default, not '0'"),
            (
                &["RATE", "1", "default"],
                "RATE takes n ms [BURST n]: so many claims in so many ms, not '1' 'default'",
            ),
            (&["BURST", "3"], "BURST can only be given together with n ms of a rate before it"),
            (&["BACKOFF", "5", "4"], "BACKOFF's max-ms must not be less than its base-ms; 4 is less than 5"),
            (&["ORDERED", "maybe"], "ORDERED must be one of yes, no, default, not 'maybe'"),
            (&["ORDERD", "yes"], "unknown option 'ORDERD'; did you mean ORDERED?"),
            (
                &["WEIGHT", "2"],
                "unknown option 'WEIGHT'; there are TENANT, CONCURRENCY, RATE, BACKOFF, ORDERED, BURST",
            ),
        ] {
            assert_eq!(group(options).unwrap_err(), text, "{options:?}");
        }
        assert!(matches!(
            parse_group_set(of(&["RQ.GROUP.SET", "q", "", "ORDERED", "yes"])),
            Err(Wrong::Name { of: "group", .. })
        ));
    }

    #[test]
    fn tenants_are_set() {
        let patch = TenantPatch {
            weight: Some(1_000_000),
            concurrency: Some(None),
            rate: Some(Some(Rate { count: 2, period: 9, burst: 2 })),
        };
        assert_eq!(
            tenant(&["RATE", "2", "9", "weight", "1000000", "CONCURRENCY", "none"]),
            Ok(Op::SetTenant { name: b"t", patch })
        );
        for (options, text) in [
            (&[][..], "nothing to do; give one of WEIGHT, CONCURRENCY, RATE"),
            (&["WEIGHT", "0"], "WEIGHT must be an integer from 1 to 1000000, not '0'"),
            (&["WEIGHT", "none"], "WEIGHT must be an integer from 1 to 1000000, not 'none'"),
            (&["RATE", "default"], "RATE must be an integer from 1 to 1000000 or none, not 'default'"),
        ] {
            assert_eq!(tenant(options).unwrap_err(), text, "{options:?}");
        }
    }

    #[test]
    fn listings() {
        let parse = |options: &[&'static str]| {
            let args = [&["RQ.GROUP.LIST", "q"], options].concat();
            parse_listing(of(&args)).map_err(|wrong| wrong.to_string())
        };
        assert_eq!(parse(&[]), Ok(Listing { tenant: None, after: None, count: 100 }));
        assert_eq!(
            parse(&["CURSOR", "17", "COUNT", "3", "TENANT", "t"]),
            Ok(Listing { tenant: Some(b"t"), after: Some(17), count: 3 })
        );
        assert_eq!(parse(&["CURSOR", "0"]), Ok(Listing { tenant: None, after: None, count: 100 }));
        assert!(parse(&["CURSOR", "1.5"]).unwrap_err().starts_with("CURSOR must be 0 or"));
        assert!(parse(&["COUNT", "0"]).is_err());
    }
}
