//! `RQ.HELP`: what `COMMAND DOCS` knows, for people.

use super::args::Wrong;
use super::docs::{self, Docs};
use super::{Access, Keys, Row, TABLE, entry};
use crate::server::call::Call;
use crate::server::reply::Refusal;

/// The commands of this file.
pub const ROWS: &[Row] = &[Row {
    name: c"RQ.HELP",
    entry: entry!(help, c"rq.help"),
    flags: c"readonly allow-loading allow-stale fast",
    arity: -1,
    keys: Keys::None,
    access: Access::Reads,
    categories: c"read fast",
    docs: &Docs {
        summary: "Shows the syntax of the commands of this module, or all about one.",
        complexity: "O(1)",
        since: "0.1.0",
        reply: "array of lines",
        args: &[docs::text("command").optional()],
    },
}];

/// `RQ.HELP [command]`
pub fn help(call: &mut Call<'_>) -> Result<(), Refusal> {
    let args = call.args();
    let lines = match (args.get(1), args.len()) {
        (None, _) => TABLE
            .iter()
            .copied()
            .flatten()
            .filter(|row| row.name != c"RQ.APPLY")
            .flat_map(|row| [syntax(row), indented(row.docs.summary)])
            .collect(),
        (Some(name), 2) => {
            let row = find(name)
                .ok_or_else(|| Refusal::Syntax("there is no such command; RQ.HELP lists them".into()))?;
            vec![
                syntax(row),
                indented(row.docs.summary),
                indented(&format!("Replies: {}", row.docs.reply)),
                indented(&format!("Takes: {}", row.docs.complexity)),
                indented(&format!("Since: {}", row.docs.since)),
            ]
        }
        _ => return Err(Wrong::Arity.into()),
    };
    let out = call.out();
    out.array(lines.len());
    for line in &lines {
        out.word(line);
    }
    Ok(())
}

/// The command of this name, with or without `RQ.` before it.
fn find(name: &[u8]) -> Option<&'static Row> {
    TABLE.iter().copied().flatten().find(|row| {
        let full = row.name.to_bytes();
        full.eq_ignore_ascii_case(name) || full.get(3..).is_some_and(|short| short.eq_ignore_ascii_case(name))
    })
}

/// Of a command as a client wrote it: how it is to be written.
pub(super) fn usage(name: &[u8]) -> Option<String> {
    find(name).map(syntax)
}

/// The command as it is to be typed.
pub(super) fn syntax(row: &Row) -> String {
    let mut line = row.name.to_string_lossy().into_owned();
    for arg in row.docs.args {
        line.push(' ');
        line.push_str(&arg.to_string());
    }
    line
}

fn indented(text: &str) -> String {
    format!("    {text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_found_with_and_without_prefix() {
        for name in ["RQ.ACK", "rq.ack", "ack", "queue.set"] {
            assert!(find(name.as_bytes()).is_some(), "{name}");
        }
        assert!(find(b"").is_none() && find(b"RQ.").is_none() && find(b"rq.x").is_none());
    }

    #[test]
    fn syntax_is_that_of_the_reference() {
        assert_eq!(
            syntax(find(b"enqueue").unwrap()),
            "RQ.ENQUEUE queue payload [ID id [IFNEW | REPLACE]] \
             [UNIQUE key [UNTIL started | finished] [FOR ms] [DEBOUNCE]] [DELAY ms | AT unix-ms] [PRIORITY 0-255] [GROUP name] \
             [TENANT name] [ATTEMPTS n | none] [CRASHES n | none] [BACKOFF base-ms [max-ms]] [LEASE ms] [TTL ms | none] \
             [DEADLINE ms]"
        );
        assert_eq!(
            syntax(find(b"group.set").unwrap()),
            "RQ.GROUP.SET queue group [TENANT name] [CONCURRENCY n | none | default] \
             [RATE n ms [BURST n] | none | default] [BACKOFF base-ms [max-ms] | default] \
             [ORDERED yes | no | default]"
        );
        assert_eq!(syntax(find(b"release").unwrap()), "RQ.RELEASE queue id token [id token ...]");
        assert_eq!(
            syntax(find(b"purge").unwrap()),
            "RQ.PURGE queue <delayed | ready | active | done | dead | cancelled> [COUNT n]"
        );
    }

    #[test]
    fn the_table_is_sound() {
        let rows: Vec<&Row> = TABLE.iter().copied().flatten().collect();
        for (index, row) in rows.iter().enumerate() {
            let name = row.name.to_str().unwrap();
            assert!(name.starts_with("RQ.") && name.to_uppercase() == name, "{name}");
            assert!(rows.iter().skip(index + 1).all(|other| other.name != row.name), "{name} twice");
            // The fewest arguments, counted in the documentation.
            let least = 1 + row.docs.args.iter().filter(|arg| !arg.is_optional).map(least).sum::<i32>();
            let has_more = row.docs.args.iter().any(can_be_more);
            // Of these, one of the options at least must be given.
            let needs_more = [c"RQ.RESCHEDULE", c"RQ.QUEUE.SET", c"RQ.GROUP.SET", c"RQ.TENANT.SET"];
            if !needs_more.contains(&row.name) {
                assert_eq!(row.arity, if has_more { -least } else { least }, "{name}");
            }
            let flags = row.flags.to_str().unwrap();
            assert_eq!(flags.starts_with("write"), row.access != Access::Reads, "{name}");
        }
    }

    #[test]
    fn the_reference_names_every_command_and_option() {
        let reference = include_str!("../../docs/commands.md");
        for row in TABLE.iter().copied().flatten().filter(|row| row.name != c"RQ.APPLY") {
            let name = row.name.to_str().unwrap();
            let section = reference.split("\n## ").find(|section| {
                section.lines().next().unwrap_or_default().split(", ").any(|title| title == name)
            });
            let section = section.unwrap_or_else(|| panic!("{name} has no section"));
            for word in docs::words(row.docs.args) {
                // The states and other values, in small letters, are explained once for all.
                let is_state = word.to_uppercase() != word;
                let is_elsewhere = name == "RQ.MENQUEUE" && section.contains("the options of RQ.ENQUEUE");
                assert!(is_state || is_elsewhere || section.contains(word), "{word} of {name}");
            }
        }
    }

    fn can_be_more(arg: &docs::Arg) -> bool {
        arg.is_optional || arg.is_multiple || arg.parts().iter().any(can_be_more)
    }

    fn least(arg: &docs::Arg) -> i32 {
        let token = i32::from(arg.token.is_some());
        token
            + match arg.kind {
                docs::Kind::Token => 0,
                docs::Kind::OneOf(parts) => parts.iter().map(least).min().unwrap_or(0),
                docs::Kind::Block(parts) => parts.iter().filter(|part| !part.is_optional).map(least).sum(),
                _ => 1,
            }
    }
}
