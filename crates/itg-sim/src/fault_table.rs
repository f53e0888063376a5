//! Faults that a configuration names: its tables `[[fault]]`, each with a time and a kind.

use itg_process::{Config, ConfigError, Params, Slot, suggestion};

use crate::faults::Fault;

/// The kinds that there are.
const KINDS: [&str; 11] = [
    "crash",
    "return",
    "pause",
    "slow",
    "partition",
    "heal",
    "cut",
    "mend",
    "reset",
    "loss",
    "suspect",
];

/// The faults of a configuration, with their times in nanoseconds.
///
/// # Errors
/// Unknown kinds, keys and processes, with file, line and the nearest name.
pub fn faults_of(config: &Config) -> Result<Vec<(u64, Fault)>, ConfigError> {
    config.faults.iter().map(|params| read(&mut params.clone(), config.processes)).collect()
}

fn read(params: &mut Params, processes: u32) -> Result<(u64, Fault), ConfigError> {
    for key in ["at", "kind"] {
        if !params.has(key) {
            return Err(params.error(format_args!("missing key `{key}`")));
        }
    }
    let at = params.time_ns("at", 0)?;
    let kind = params.text("kind")?.unwrap_or_default();
    let mut slot = |key| slot(params, key, processes);
    let fault = match kind.as_str() {
        "crash" => Fault::Crash(slot("process")?),
        "return" => Fault::Recover(slot("process")?),
        "pause" => Fault::Pause(slot("process")?, time(params, "lasts")?),
        "slow" => Fault::Slow(slot("process")?, time(params, "call")?),
        "partition" => Fault::Partition(groups(params, processes)?),
        "heal" => Fault::Partition(Vec::new()),
        "cut" => Fault::Cut(slot("from")?, slot("to")?),
        "mend" => Fault::Mend(slot("from")?, slot("to")?),
        "reset" => Fault::Reset(slot("from")?, slot("to")?),
        "loss" => Fault::Lossy(slot("process")?, params.probability("probability")?),
        "suspect" => Fault::Suspect(slot("process")?, slot("suspect")?),
        other => {
            let text = format!("no fault `{other}`: {}", suggestion(other, KINDS));
            return Err(params.error_at("kind", text));
        }
    };
    params.finish()?;
    Ok((at, fault))
}

fn slot(params: &mut Params, key: &'static str, processes: u32) -> Result<Slot, ConfigError> {
    if !params.has(key) {
        return Err(params.error(format_args!("missing key `{key}`")));
    }
    let number = params.number(key, 0)?;
    let slot = u32::try_from(number).ok().filter(|slot| *slot < processes);
    let text = format_args!("processes go from 0 to {}", processes - 1);
    slot.map(Slot).ok_or_else(|| params.error_at(key, text))
}

fn time(params: &mut Params, key: &'static str) -> Result<u64, ConfigError> {
    match params.has(key) {
        true => params.time_ns(key, 0),
        false => Err(params.error(format_args!("missing key `{key}`"))),
    }
}

/// Group of each process; those that no group names are in one of their own.
fn groups(params: &mut Params, processes: u32) -> Result<Vec<u8>, ConfigError> {
    let expected = "expected groups of processes: groups = [[0, 1], [2]]";
    let found = params.value("groups");
    let found = found.as_ref().and_then(toml::Value::as_array);
    let named = found.filter(|groups| groups.len() < usize::from(u8::MAX));
    let named = named.ok_or_else(|| params.error_at("groups", expected))?;
    let rest = u8::try_from(named.len()).unwrap_or(u8::MAX);
    let mut groups = vec![rest; usize::try_from(processes).unwrap_or(usize::MAX)];
    for (group, members) in (0_u8..).zip(named) {
        let members = members.as_array().ok_or_else(|| params.error_at("groups", expected))?;
        for member in members {
            let at = member.as_integer().and_then(|slot| usize::try_from(slot).ok());
            let place = at.and_then(|at| groups.get_mut(at));
            *place.ok_or_else(|| params.error_at("groups", expected))? = group;
        }
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_with_their_times_and_refused_where_they_stand() {
        for (fault, want) in [
            ("kind = \"crash\"\nprocess = 1", Ok(Fault::Crash(Slot(1)))),
            ("kind = \"return\"\nprocess = 1", Ok(Fault::Recover(Slot(1)))),
            ("kind = \"pause\"\nprocess = 0\nlasts = \"1us\"", Ok(Fault::Pause(Slot(0), 1000))),
            ("kind = \"partition\"\ngroups = [[2]]", Ok(Fault::Partition(vec![1, 1, 0]))),
            ("kind = \"heal\"", Ok(Fault::Partition(Vec::new()))),
            ("kind = \"loss\"\nprocess = 2\nprobability = 0.5", Ok(Fault::Lossy(Slot(2), 500_000))),
            ("kind = \"suspect\"\nprocess = 0\nsuspect = 2", Ok(Fault::Suspect(Slot(0), Slot(2)))),
            (
                "kind = \"crash\"\nprocess = 3",
                Err("8:11: [[fault]]: process: processes go from 0 to 2"),
            ),
            ("kind = \"crash\"", Err("5:1: [[fault]]: missing key `process`")),
            (
                "kind = \"crsh\"",
                Err("7:8: [[fault]]: kind: no fault `crsh`: did you mean `crash`?"),
            ),
            (
                "kind = \"heal\"\nprocess = 1",
                Err("8:11: [[fault]]: unknown key `process`: expected one of `at`, `kind`"),
            ),
        ] {
            let text = format!(
                "processes = 3\n[[network]]\nname = \"main\"\nkind = \"fixed\"\n[[fault]]\nat = \"2ms\"\n{fault}\n"
            );
            let config = Config::parse(&text, "x").expect("well written");
            let read = faults_of(&config).map_err(|error| error.to_string());
            let want = want.map(|fault| vec![(2_000_000, fault)]);
            assert_eq!(read, want.map_err(|text| format!("x:{text}")), "{fault}");
        }
    }
}
