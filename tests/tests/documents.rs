//! Rules for documents: scenarios are in their table, tests that it names exist, links lead somewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;

use itg_tests::{files, root};

/// Letters of the codes of scenarios, as `docs/scenarios.md` lists them.
const LETTERS: &str = "NMBXLCS";
/// Pages that were never part of the repository.
const ABSENT: [&str; 2] = ["papers.md", "protocols.md"];

/// Text files of the repository by their path from the root.
fn texts() -> BTreeMap<String, String> {
    let root = root();
    let is_text = |path: &PathBuf| {
        let end = path.extension().and_then(OsStr::to_str).unwrap_or_default();
        ["rs", "md", "toml", "sh", "py"].contains(&end) || path.ends_with(".ci/run")
    };
    let texts = files().into_iter().filter(is_text).map(|path| {
        let short = path.strip_prefix(&root).expect("inside").to_string_lossy().into_owned();
        (short, fs::read_to_string(&path).expect("text"))
    });
    texts.collect()
}

/// Rows of the table of scenarios: code, sentence, tests.
fn scenarios(page: &str) -> Vec<[&str; 3]> {
    page.lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ");
            let row = [cells.next()?, cells.next()?, cells.next()?];
            is_code(row[0]).then_some(row)
        })
        .collect()
}

fn is_code(word: &str) -> bool {
    let Some((letter, number)) = word.split_once('-') else { return false };
    letter.len() == 1
        && LETTERS.contains(letter)
        && (1..=2).contains(&number.len())
        && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// Codes in running text (`M-16`), and in names of tests (`fn m_16_…`).
fn codes(text: &str) -> BTreeSet<String> {
    let word = |c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_');
    let written = text.split(word).filter(|word| is_code(word)).map(str::to_owned);
    let named = text.split("fn ").skip(1).filter_map(|name| {
        let mut parts = name.split('_');
        let code = format!("{}-{}", parts.next()?.to_uppercase(), parts.next()?);
        (is_code(&code) && parts.next().is_some()).then_some(code)
    });
    written.chain(named).collect()
}

#[test]
fn every_scenario_in_use_is_in_the_table_once() {
    let texts = texts();
    let mut table = BTreeSet::new();
    for [code, sentence, tests] in scenarios(&texts["docs/scenarios.md"]) {
        assert!(table.insert(code.to_owned()), "{code} has two rows");
        assert!(sentence.ends_with('.') && !tests.is_empty(), "{code}: no sentence or no test");
    }
    assert!(table.len() > 80, "the table has rows");
    for (path, text) in &texts {
        for code in codes(text) {
            assert!(table.contains(&code), "{path} speaks of {code}: not in docs/scenarios.md");
        }
    }
}

#[test]
fn every_test_that_the_table_names_is_there() {
    let texts = texts();
    for [code, _, tests] in scenarios(&texts["docs/scenarios.md"]) {
        for test in tests.split(", ") {
            let test = test.strip_prefix('`').and_then(|test| test.strip_suffix('`'));
            let test = test.unwrap_or_else(|| panic!("{code}: a test without quotes"));
            let (path, name) = test.split_once("::").unwrap_or((test, ""));
            let text = texts.get(path).unwrap_or_else(|| panic!("{code}: there is no {path}"));
            let there = name.is_empty() || text.contains(&format!("fn {name}("));
            assert!(there, "{code}: there is no test {name} in {path}");
        }
    }
}

/// Targets of the links of a Markdown page, those into the repository.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target.split('#').next().unwrap_or(target))
        .filter(|target| !target.is_empty() && !target.contains("://") && !target.contains(' '))
}

#[test]
fn links_of_pages_lead_to_files() {
    for (path, text) in texts().iter().filter(|(path, _)| path.ends_with(".md")) {
        let page = root().join(path);
        for link in links(text) {
            assert!(page.with_file_name(link).exists(), "{path}: the link {link} leads nowhere");
        }
    }
}

#[test]
fn pages_that_texts_name_are_in_the_repository() {
    let page = |c: char| !(c.is_ascii_alphanumeric() || "-_./".contains(c));
    for (path, text) in texts().iter().filter(|(path, _)| !path.ends_with("documents.rs")) {
        for name in text.split(page).filter(|word| word.ends_with(".md")) {
            let absent = ABSENT.iter().any(|absent| name.ends_with(absent));
            let missing = name.starts_with("docs/") && !root().join(name).exists();
            assert!(!absent && !missing, "{path} names {name}: no such page");
        }
    }
}

/// Names of types, functions and modules in code marks, as `Engine::run`; `EventName` is one, `itg-send` is not.
fn names(text: &str) -> impl Iterator<Item = &str> {
    let marked = text.split('`').skip(1).step_by(2);
    let words = marked.map(|name| name.strip_suffix("()").unwrap_or(name));
    words.filter(|name| {
        let word = |part: &str| {
            part.starts_with(|c: char| c.is_ascii_alphabetic())
                && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        name.split("::").all(word)
    })
}

#[test]
fn names_on_the_pages_for_developers_are_in_the_code() {
    let mut code = BTreeSet::new();
    let texts = texts();
    for (path, text) in &texts {
        if path.ends_with(".rs") || path.ends_with(".toml") || path == "justfile" {
            code.extend(text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')));
        }
    }
    for page in ["ARCHITECTURE.md", "CONTRIBUTING.md"] {
        let gone: Vec<_> = names(&texts[page])
            .filter(|name| !name.split("::").all(|part| code.contains(part)))
            .collect();
        assert!(gone.is_empty(), "{page}: in no file of code: {gone:?}");
    }
}

#[test]
fn the_index_of_documents_names_each_page() {
    let texts = texts();
    let index = &texts["docs/README.md"];
    for path in texts.keys() {
        let Some(page) = path.strip_prefix("docs/") else { continue };
        let listed = page == "README.md" || page.contains('/') || links(index).any(|l| l == page);
        assert!(listed || !page.ends_with(".md"), "docs/README.md does not name {page}");
    }
}

/// Longest line of a page, in characters, but for rows of tables.
const LINE_MAX: usize = 120;

#[test]
fn lines_of_pages_are_short() {
    for (path, text) in texts() {
        // Entries of the changelog and decisions stay as they were written on their day.
        let page = path.ends_with(".md") && path != "CHANGELOG.md" && !path.contains("decisions/");
        for (number, line) in text.lines().enumerate().filter(|_| page) {
            let length = line.chars().count();
            let table = line.starts_with('|');
            assert!(table || length <= LINE_MAX, "{path}:{}: {length} characters", number + 1);
        }
    }
}

#[test]
fn files_that_pages_name_are_there() {
    let page = |path: &str| {
        let plain = !path.starts_with("docs/lab/") && !path.starts_with("docs/decisions/");
        path.ends_with(".md") && path != "CHANGELOG.md" && plain
    };
    for (path, text) in texts().iter().filter(|(path, _)| page(path)) {
        for name in text.split('`').filter(|name| name.ends_with(".rs")) {
            let ours = ["crates/", "itg-", "tests/tests/", "tests/long/", "benches/", "fuzz/"];
            let from_the_root = ours.iter().any(|start| name.starts_with(start));
            assert!(
                !from_the_root || root().join(name).is_file(),
                "{path} names {name}: no such file"
            );
        }
    }
}

#[test]
fn each_library_crate_has_a_readme_whose_example_is_tested() {
    let texts = texts();
    for entry in fs::read_dir(root().join("crates")).expect("readable") {
        let name = entry.expect("readable").file_name().to_string_lossy().into_owned();
        let page = texts.get(&format!("crates/{name}/README.md"));
        let example = page.is_some_and(|page| page.contains("```rust\n"));
        let tested = texts[&format!("crates/{name}/src/lib.rs")].contains("\"../README.md\"");
        assert!(example && tested, "{name}: no README with an example that is tested");
    }
}

#[test]
fn every_rfc_in_use_is_in_the_references() {
    let texts = texts();
    let (_, standards) =
        texts["docs/references.md"].split_once("## Standards").expect("the table of RFCs");
    let listed: BTreeSet<&str> =
        standards.split(|c: char| !c.is_ascii_digit()).filter(|word| !word.is_empty()).collect();
    for (path, text) in texts.iter().filter(|(path, _)| !path.ends_with("references.md")) {
        for rest in text.split("RFC ").skip(1) {
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let known = end < 3 || listed.contains(&rest[..end]);
            assert!(known, "{path} cites RFC {}: not in docs/references.md", &rest[..end]);
        }
    }
}

#[test]
fn each_package_inherits_licence_and_repository() {
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        assert!(root().join(licence).is_file(), "{licence}: the text is missing");
    }
    for (path, text) in texts().iter().filter(|(path, _)| path.ends_with("/Cargo.toml")) {
        for key in ["license", "repository"] {
            // Fuzz targets are no part of the workspace and not published.
            let inherited = text.contains(&format!("\n{key}.workspace = true\n"));
            assert!(inherited || path == "fuzz/Cargo.toml", "{path}: {key}.workspace is missing");
        }
    }
}

/// Words of an older dialect: `docs/glossary.md` has the field's words in their place.
const OLD_WORDS: [&str; 10] =
    ["law", "laws", "gap", "gaps", "wish", "wishes", "door", "doors", "fate", "fates"];

#[test]
fn pages_for_users_use_the_words_of_the_glossary() {
    let user = |path: &str| {
        let name = path.strip_prefix("docs/").unwrap_or(path);
        let page = name.ends_with(".md") && !name.contains('/') && name != "CHANGELOG.md";
        page && !["glossary.md", "references.md", "scenarios.md"].contains(&name)
    };
    for (path, text) in texts().iter().filter(|(path, _)| user(path)) {
        // What stands between backquotes is a name.
        for (number, prose) in text.split('`').enumerate().filter(|(i, _)| i % 2 == 0) {
            let mut words = prose.split(|c: char| !c.is_alphanumeric());
            let old = words.find(|word| OLD_WORDS.contains(&word.to_lowercase().as_str()));
            assert_eq!(old, None, "{path}: an old word in piece {number}: {prose}");
        }
    }
}
