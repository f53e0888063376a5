//! Files on which trust rests: what anybody else may have changed, or read, is refused.
#![allow(missing_docs, reason = "tests")]

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;

use itg_trust::read_guarded;

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
}

#[test]
fn files_that_others_can_change_or_read_are_refused() {
    let dir = itg_testkit::host::temp_dir();
    let file = dir.path().join("secret");
    fs::write(&file, "between us").expect("writable");
    for (rights, open, secret) in [
        (0o600, "", ""),
        (0o400, "", ""),
        (0o644, "", "others can read it (mode 0644)"),
        (0o640, "", "others can read it (mode 0640)"),
        (0o604, "", "others can read it (mode 0604)"),
        (0o666, "others can change it (mode 0666)", "others can change it"),
        (0o620, "others can change it (mode 0620)", "others can change it"),
        (0o602, "others can change it (mode 0602)", "others can change it"),
    ] {
        mode(&file, rights);
        for (is_secret, why) in [(false, open), (true, secret)] {
            match read_guarded(&file, is_secret) {
                Ok(bytes) => {
                    assert_eq!((bytes.as_slice(), why), (&b"between us"[..], ""), "{rights:o}");
                }
                Err(error) => {
                    assert!(!why.is_empty() && error.starts_with(why), "{rights:o}: {error}");
                    assert!(error.contains("`chmod "), "{error}");
                }
            }
        }
    }
    mode(&file, 0o600);
    mode(dir.path(), 0o777);
    let error = read_guarded(&file, true).expect_err("anybody can replace it");
    assert!(error.starts_with("its directory: others can change it (mode 0777)"), "{error}");
    // Where only its owner can remove a file, it stays.
    mode(dir.path(), 0o1777);
    read_guarded(&file, true).expect("as in /tmp");
    mode(dir.path(), 0o700);
    // Only root can give a file away.
    if chown(&file, Some(12_345), None).is_ok() {
        let error = read_guarded(&file, true).expect_err("another's");
        assert!(error.starts_with("it belongs to user 12345"), "{error}");
    }
}

#[test]
fn what_is_no_short_regular_file_holds_nothing_up() {
    let dir = itg_testkit::host::temp_dir();
    let at = |name: &str| dir.path().join(name);
    nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRUSR).expect("a pipe");
    File::create(at("holes")).and_then(|file| file.set_len(1 << 40)).expect("a sparse file");
    mode(&at("holes"), 0o600);
    for (name, why) in [
        ("pipe", "it is no regular file"),
        ("holes", "it is longer than 64 KiB"),
        ("nothing", "No such file"),
    ] {
        let error = read_guarded(&at(name), true).expect_err(name);
        assert!(error.starts_with(why), "{name}: {error}");
    }
    let error = read_guarded(dir.path(), false).expect_err("a directory");
    assert_eq!(error, "it is no regular file");
}
