//! Tests of this crate as one program: `cargo test -p itg-core --test cases NAME::` runs those of one file.

mod distribution_texts;
mod distributions;
mod golden;
mod profiles;
mod properties;
mod units;
