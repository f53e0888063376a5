//! The rules of the house (see `ARCHITECTURE.md`): imports between packages, crates that stay pure,
//! licences we build on, size of files, and circles among them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use cargo_metadata::{DepKindInfo, DependencyKind, Metadata, MetadataCommand, TargetKind};
use itg_tests::{circles, files, root};

/// Allowed imports among our own packages, as `ARCHITECTURE.md` draws them.
const ARROWS: &[(&str, &[&str])] = &[
    ("itg-core", &[]),
    ("itg-arena", &[]),
    ("itg-record", &["itg-core", "itg-arena"]),
    ("itg-fidelity", &["itg-core"]),
    ("itg-clocks", &["itg-core"]),
    ("itg-stats", &["itg-clocks", "itg-core", "itg-fidelity", "itg-record"]),
    ("itg-compare", &["itg-core", "itg-stats"]),
    // Programs and the Python package open logs in the same way.
    ("itg-files", &["itg-classic", "itg-core", "itg-record", "itg-stats"]),
    ("itg-session", &["itg-core", "itg-record"]),
    ("itg-experiment", &["itg-core"]),
    ("itg-control", &["itg-core", "itg-group", "itg-process"]),
    ("itg-process", &["itg-core"]),
    ("itg-members", &["itg-core", "itg-process"]),
    ("itg-group", &["itg-core", "itg-members", "itg-process"]),
    // Simulated flows write the records that real ones write.
    ("itg-sim", &["itg-core", "itg-process", "itg-record"]),
    ("itg-classic", &["itg-core", "itg-record"]),
    ("itg-socket", &["itg-core"]),
    // Agents, senders and log servers prove with the same keys who they are.
    ("itg-trust", &["itg-socket"]),
    // D-ITG's packets leave through the same thread, and its records go to the same files.
    (
        "itg-engine",
        &["itg-classic", "itg-core", "itg-record", "itg-session", "itg-socket", "itg-trust"],
    ),
    (
        "itg-node",
        &[
            "itg-classic",
            "itg-core",
            "itg-engine",
            "itg-record",
            "itg-session",
            "itg-socket",
            "itg-trust",
        ],
    ),
    ("itg-mesh", &["itg-core", "itg-process", "itg-socket"]),
    ("itg-mpi", &["itg-core", "itg-process", "itg-record"]),
    (
        "itg-cli",
        &[
            "itg-clocks",
            "itg-core",
            "itg-engine",
            "itg-experiment",
            "itg-node",
            "itg-session",
            "itg-socket",
            "itg-stats",
            "itg-trust",
        ],
    ),
    ("itg-report", &["itg-compare", "itg-core", "itg-stats"]),
    (
        "itg-run",
        &[
            "itg-cli",
            "itg-compare",
            "itg-core",
            "itg-engine",
            "itg-experiment",
            "itg-group",
            "itg-members",
            "itg-mesh",
            "itg-mpi",
            "itg-node",
            "itg-process",
            "itg-record",
            "itg-report",
            "itg-sim",
            "itg-socket",
            "itg-stats",
        ],
    ),
    (
        "itg-agent",
        &[
            "itg-cli",
            "itg-control",
            "itg-core",
            "itg-engine",
            "itg-experiment",
            "itg-group",
            "itg-members",
            "itg-mesh",
            "itg-node",
            "itg-process",
            "itg-record",
            "itg-run",
            "itg-session",
            "itg-socket",
            "itg-trust",
        ],
    ),
    (KIT, &["itg-core", "itg-record"]),
    // For ourselves: reproductions, and what measurements share.
    ("itg-papers", &["itg-arena", "itg-group", "itg-members", "itg-process"]),
    ("itg-trials", &["itg-cli", KIT]),
    ("itg-bench-clock", &["itg-clocks", "itg-core", "itg-stats", "itg-trials"]),
    ("itg-bench-expresso", &["itg-papers", "itg-trials"]),
];
/// Packages that nothing imports: programs, measurements, examples. They may import any crate.
const PROGRAMS: &[&str] = &[
    "itg-send",
    "itg-recv",
    "itg-log",
    "itg-decode",
    "itg-cluster",
    "itg-ditg",
    "itg-python",
    "itg-benches",
    "itg-bench-rpc",
    "itg-examples",
    "itg-pages",
    "itg-programs",
];
/// Packages of what is delivered: they import programs.
const DELIVERED: &[&str] = &["itg-pages", "itg-programs"];
/// Package of what tests and measurements share.
const KIT: &str = "itg-testkit";
/// Packages that are not published: tests, measurements, reproductions. Others do not import them
/// (`packages_can_be_published`).
const PRIVATE: &[&str] = &[
    "itg-benches",
    "itg-bench-clock",
    "itg-bench-expresso",
    "itg-bench-rpc",
    "itg-examples",
    "itg-pages",
    "itg-papers",
    "itg-programs",
    "itg-python",
    "itg-tests",
    "itg-tests-long",
    KIT,
    "itg-trials",
];
/// Packages that do no I/O: no runtime, no sockets, no system calls.
const PURE: &[&str] = &[
    "itg-core",
    "itg-arena",
    "itg-record",
    "itg-clocks",
    "itg-fidelity",
    "itg-stats",
    "itg-compare",
    "itg-session",
    "itg-experiment",
    "itg-control",
    "itg-process",
    "itg-members",
    "itg-group",
    "itg-sim",
    "itg-classic",
    "itg-report",
];
const IMPURE: &[&str] =
    &["tokio", "tokio-util", "socket2", "nix", "libc", "mio", "memmap2", "indicatif"];
/// Lines beyond which a file of code is split.
const MOST_LINES: usize = 800;
/// Lines below `src` beyond which a package has two trades: split it.
const MOST_LINES_OF_A_PACKAGE: usize = 12_000;
/// Files of one crate that may import one another in a circle.
const MOST_IN_A_CIRCLE: usize = 3;

fn metadata() -> Metadata {
    metadata_with(&[])
}

fn metadata_with(options: &[&str]) -> Metadata {
    let options = ["--locked"].iter().chain(options).map(|&option| option.to_owned());
    let mut command = MetadataCommand::new();
    command.manifest_path(root().join("Cargo.toml")).other_options(options.collect::<Vec<_>>());
    command.exec().expect("cargo metadata")
}

/// Our packages that a package imports, without those of its tests.
fn imports(package: &cargo_metadata::Package) -> BTreeSet<&str> {
    let ours = |dependency: &&cargo_metadata::Dependency| {
        dependency.path.is_some() && dependency.kind != DependencyKind::Development
    };
    package.dependencies.iter().filter(ours).map(|dependency| dependency.name.as_str()).collect()
}

/// The table of the page names the imports of each crate below `crates/`, as they are.
#[test]
fn the_page_on_architecture_names_all_imports() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the page");
    let rows: BTreeMap<_, _> = page
        .lines()
        .filter_map(|line| {
            let cells: Vec<_> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            let [name, _, told] = cells[..] else { return None };
            Some((name.strip_prefix('`')?.strip_suffix('`')?, told))
        })
        .collect();
    let metadata = metadata();
    let crates = root().join("crates");
    for package in metadata.workspace_packages() {
        if !package.manifest_path.as_std_path().starts_with(&crates) {
            continue;
        }
        let name = package.name.as_str();
        let told = rows.get(name).unwrap_or_else(|| panic!("ARCHITECTURE.md has no row of {name}"));
        let told: BTreeSet<_> = told
            .split(", ")
            .filter(|&other| other != "–")
            .map(|other| format!("itg-{other}"))
            .collect();
        let are: BTreeSet<_> = imports(package).into_iter().map(str::to_owned).collect();
        assert_eq!(told, are, "the row of {name} in ARCHITECTURE.md, and what it imports");
    }
}

#[test]
fn imports_follow_the_arrows() {
    let metadata = metadata();
    let arrows: BTreeMap<_, _> = ARROWS.iter().copied().collect();
    for package in metadata.workspace_packages() {
        let name = package.name.as_str();
        if name == "itg-tests" {
            continue;
        }
        for to in imports(package) {
            let delivered = DELIVERED.contains(&name);
            assert!(delivered || !PROGRAMS.contains(&to), "{name} imports the program {to}");
            let allowed = PROGRAMS.contains(&name)
                || arrows
                    .get(name)
                    .unwrap_or_else(|| panic!("{name} has no row in ARROWS"))
                    .contains(&to);
            assert!(allowed, "{name} imports {to}: no such arrow in the house");
        }
    }
}

#[test]
fn pure_crates_import_nothing_that_does_io() {
    for package in metadata().workspace_packages() {
        for dependency in &package.dependencies {
            let pure = PURE.contains(&package.name.as_str());
            let impure = IMPURE.contains(&dependency.name.as_str());
            if dependency.kind != DependencyKind::Development {
                assert!(!(pure && impure), "{} imports {}", package.name, dependency.name);
            }
        }
    }
}

/// A library that derives are made of is compiled in another way if others use it too, and with it all derives and all
/// that they derive for: once more for those who have compiled the programs alone.
#[test]
fn what_derives_are_made_of_is_compiled_for_them_alone() {
    // Without libraries for other systems.
    let metadata = metadata_with(&["--filter-platform", "x86_64-unknown-linux-gnu"]);
    let packages: BTreeMap<_, _> =
        metadata.packages.iter().map(|package| (&package.id, package)).collect();
    let resolved = metadata.resolve.as_ref().expect("a resolved workspace");
    let nodes: BTreeMap<_, _> = resolved.nodes.iter().map(|node| (&node.id, node)).collect();
    let is_derive = |id| {
        let targets = &packages[id].targets;
        targets.iter().any(|target| target.kind.contains(&TargetKind::ProcMacro))
    };
    let mut left: Vec<_> = metadata.workspace_members.iter().collect();
    let mut seen: BTreeSet<_> = left.iter().copied().collect();
    while let Some(id) = left.pop() {
        let of = packages[id].name.as_str();
        for dependency in &nodes[id].deps {
            let for_build = |kind: &DepKindInfo| kind.kind == DependencyKind::Build;
            if dependency.dep_kinds.iter().all(for_build) || is_derive(&dependency.pkg) {
                continue;
            }
            let name = packages[&dependency.pkg].name.as_str();
            assert!(!["proc-macro2", "unicode-ident"].contains(&name), "{of} imports {name}");
            if seen.insert(&dependency.pkg) {
                left.push(&dependency.pkg);
            }
        }
    }
}

/// Libraries of others, and their features, that cargo chooses for a selection of our packages.
fn libraries(selection: &[&str]) -> BTreeSet<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["tree", "--locked", "--no-dedupe", "--prefix", "none", "-f", "{p}|{f}"]);
    let done = command.args(selection).current_dir(root()).output().expect("cargo tree");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let said = String::from_utf8(done.stdout).expect("text");
    said.lines().filter(|line| !line.starts_with("itg-")).map(str::to_owned).collect()
}

/// See the dependencies of these tests.
#[test]
fn the_whole_workspace_shares_what_the_programs_compile() {
    let programs = libraries(&["-e", "normal,build"]);
    let all =
        libraries(&["-e", "normal,build,dev", "--workspace", "--features", "itg-cluster/mpi"]);
    let alone: Vec<_> = programs.difference(&all).collect();
    assert!(alone.is_empty(), "other features are chosen for the whole workspace: {alone:?}");
}

/// A file of tests that no program names is never compiled: crates whose tests are one program name each of theirs.
#[test]
fn every_file_of_tests_is_run() {
    let mut forgotten = Vec::new();
    for package in metadata().workspace_packages() {
        let tests =
            || package.targets.iter().filter(|target| target.kind.contains(&TargetKind::Test));
        let Some(cases) = tests().find(|target| target.name == "cases") else { continue };
        let cases = fs::read_to_string(&cases.src_path).expect("its source");
        for entry in fs::read_dir(package.manifest_path.with_file_name("tests")).expect("tests") {
            let path = entry.expect("an entry").path();
            let name = path.file_stem().and_then(|name| name.to_str()).expect("a name");
            if path.extension().is_some_and(|extension| extension == "rs")
                && !tests().any(|target| target.name == name)
                && !cases.lines().any(|line| line == format!("mod {name};"))
            {
                forgotten.push(path);
            }
        }
    }
    assert!(forgotten.is_empty(), "named neither in cases.rs nor in Cargo.toml: {forgotten:?}");
}

/// What `cargo package` asks of a package, and what readers of a registry look for. `tests/packages` makes and builds
/// them.
#[test]
fn packages_can_be_published() {
    let metadata = metadata();
    let stays = |name: &str| PRIVATE.contains(&name);
    for package in metadata.workspace_packages() {
        let name = package.name.as_str();
        assert_eq!(package.publish.is_some(), stays(name), "`publish` of {name}");
        for dependency in package.dependencies.iter().filter(|one| one.path.is_some()) {
            let to = dependency.name.as_str();
            let version = dependency.req.to_string();
            if dependency.kind == DependencyKind::Development {
                // With a version, the other one would have to be published before it.
                let free = version == "*" || stays(name);
                assert!(free, "{name}: {to} is for tests, so it is named by its path alone");
            } else if !stays(name) {
                assert!(!stays(to), "{name} imports {to}, which is not published");
                assert_eq!(version, format!("^{}", package.version), "{name} imports {to}");
            }
        }
        if stays(name) {
            continue;
        }
        assert!(package.description.is_some() && package.repository.is_some(), "{name}");
        assert!(package.readme().is_some_and(|page| page.exists()), "{name} has no README");
        assert!((1..=5).contains(&package.keywords.len()), "keywords of {name}");
        assert!(package.keywords.iter().all(|word| word.len() <= 20), "keywords of {name}");
        assert!((1..=5).contains(&package.categories.len()), "categories of {name}");
        let folder = package.manifest_path.parent().expect("a folder");
        for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
            assert!(folder.join(licence).exists(), "{name} has no {licence}");
        }
    }
}

/// What a package embeds lies in its folder, else it is not in the package.
#[test]
fn sources_embed_nothing_from_outside_their_package() {
    let root = root();
    for_each_file_of_code(|path, text| {
        let path = path.strip_prefix(&root).expect("below it").display().to_string();
        let Some((folder, inside)) = path.split_once("/src/") else { return };
        let depth = inside.matches('/').count() + 1;
        let openings = ["include_str!(\"", "include_bytes!(\"", "#[path = \""];
        for part in openings.iter().flat_map(|opening| text.split(opening).skip(1)) {
            let embedded = part.split('"').next().unwrap_or_default();
            let up = embedded.matches("../").count();
            assert!(up <= depth, "{folder}/src/{inside} embeds {embedded}");
        }
    });
}

/// Strings of a list in `deny.toml`.
fn strings(list: &toml::Value) -> Vec<&str> {
    list.as_array().expect("a list").iter().map(|entry| entry.as_str().expect("text")).collect()
}

/// Checks of `cargo deny check licenses sources bans`, without a program to build.
#[test]
fn everything_is_as_deny_toml_wants_it() {
    let text = fs::read_to_string(root().join("deny.toml")).expect("deny.toml");
    let rules: toml::Value = toml::from_str(&text).expect("TOML");
    let licences = strings(&rules["licenses"]["allow"]);
    let denied = strings(&rules["bans"]["deny"]);
    for rule in ["unknown-registry", "unknown-git"] {
        assert_eq!(rules["sources"][rule].as_str(), Some("deny"), "{rule}");
    }
    assert_eq!(rules["bans"]["wildcards"].as_str(), Some("deny"));
    let metadata = metadata();
    let workspace = &metadata.workspace_members;
    for package in metadata.packages.iter().filter(|p| !workspace.contains(&p.id)) {
        let name = package.name.as_str();
        let source = package.source.as_ref().map(ToString::to_string).unwrap_or_default();
        let registry = "registry+https://github.com/rust-lang/crates.io-index";
        assert_eq!(source, registry, "source of {name}");
        assert!(!denied.contains(&name), "{name} is denied");
        let licence = package.license.as_deref().unwrap_or("none");
        // One of the alternatives must consist of licences of the list.
        let fits = licence.replace('/', " OR ").split(" OR ").any(|choice| {
            choice
                .split(" AND ")
                .all(|part| licences.contains(&part.trim().trim_matches(['(', ')']).trim()))
        });
        assert!(fits, "{name} {} is licensed as `{licence}`", package.version);
    }
    for package in metadata.workspace_packages() {
        for dependency in package.dependencies.iter().filter(|one| one.path.is_none()) {
            let any = dependency.req.to_string() == "*";
            assert!(!any, "{} takes any version of {}", package.name, dependency.name);
        }
    }
}

/// A crate with an advisory that we live with has a decision that says until when.
#[test]
fn advisories_that_are_ignored_have_a_decision() {
    let text = fs::read_to_string(root().join("deny.toml")).expect("deny.toml");
    let rules: toml::Value = toml::from_str(&text).expect("TOML");
    let decisions = fs::read_dir(root().join("docs/decisions")).expect("decisions");
    let decisions: String = decisions
        .map(|entry| fs::read_to_string(entry.expect("an entry").path()).expect("text"))
        .collect();
    for ignored in rules["advisories"]["ignore"].as_array().expect("a list") {
        let id = ignored["id"].as_str().expect("an identifier");
        assert!(decisions.contains(id), "{id} has no decision");
    }
}

/// Calls this with the path and the text of every file of code.
fn for_each_file_of_code(mut look: impl FnMut(&Path, &str)) {
    for path in files().iter().filter(|path| path.extension().is_some_and(|end| end == "rs")) {
        look(path, &fs::read_to_string(path).expect("readable"));
    }
}

#[test]
fn no_file_swallows_the_house() {
    for_each_file_of_code(|path, text| {
        let lines = text.lines().count();
        assert!(lines <= MOST_LINES, "{} has {lines} lines: split it", path.display());
    });
}

/// Files of code below `src` of each package: path and text by folder of the package.
fn sources() -> BTreeMap<String, BTreeMap<String, String>> {
    let root = root();
    let mut packages: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for_each_file_of_code(|path, text| {
        let path = path.strip_prefix(&root).expect("below it").display().to_string();
        if let Some((folder, file)) = path.split_once("/src/") {
            packages.entry(folder.to_owned()).or_default().insert(file.to_owned(), text.to_owned());
        }
    });
    assert!(packages.len() > 20, "the packages are there");
    packages
}

#[test]
fn no_package_swallows_the_house() {
    for (folder, files) in sources() {
        let lines: usize = files.values().map(|text| text.lines().count()).sum();
        let most = MOST_LINES_OF_A_PACKAGE;
        assert!(lines <= most, "{folder}/src has {lines} lines, at most {most}: split it");
    }
}

/// Clippy takes the first `clippy.toml` above a package and no other.
#[test]
fn functions_have_the_same_limits_everywhere() {
    let rules: Vec<_> = files().into_iter().filter(|path| path.ends_with("clippy.toml")).collect();
    for path in &rules {
        let text = fs::read_to_string(path).expect("readable");
        let rules: toml::Value = toml::from_str(&text).expect("TOML");
        let limit = |name: &str| rules.get(name).and_then(toml::Value::as_integer);
        let limits = ["too-many-lines-threshold", "too-many-arguments-threshold"].map(limit);
        assert_eq!(limits, [Some(80), Some(6)], "{}", path.display());
    }
    assert!(rules.len() > 20, "the packages of the edge are there");
}

#[test]
fn no_circle_of_imports_has_more_than_three_files() {
    for (folder, files) in &sources() {
        for circle in circles(files) {
            let few = circle.len() <= MOST_IN_A_CIRCLE;
            assert!(few, "{folder}: these files import one another: {circle:?}");
        }
    }
}

#[test]
fn the_tests_that_the_table_of_bugs_names_are_there() {
    let page = fs::read_to_string(root().join("docs/d-itg.md")).expect("readable");
    let (_, table) = page.split_once("## D-ITG's bugs and our tests").expect("the table");
    let tests = table.lines().filter(|line| line.starts_with("| ")).filter_map(|row| {
        let last = row.trim_end_matches(" |").rsplit(" | ").next()?;
        Some(last.split(", ").filter_map(|name| name.strip_prefix('`')?.strip_suffix('`')))
    });
    let mut missing: Vec<String> = tests.flatten().map(str::to_owned).collect();
    assert!(missing.len() > 20, "the table has rows");
    for_each_file_of_code(|_, text| missing.retain(|name| !text.contains(&format!("fn {name}("))));
    assert!(missing.is_empty(), "docs/d-itg.md names tests that are not there: {missing:?}");
}
