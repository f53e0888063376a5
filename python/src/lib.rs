//! Logs of ITG as Arrow tables in Python: what the package `itg` is made of, below its own Python.
//!
//! A table leaves through the Arrow PyCapsule interface, so that polars, pyarrow, pandas and DuckDB take it without a
//! copy. Decoding holds no lock of the interpreter.

mod logs;
mod table;

use std::path::PathBuf;

use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;

use crate::logs::{Failure, Request};
use crate::table::Table;

create_exception!(
    itg,
    Error,
    PyException,
    "What goes wrong in ITG; all its exceptions are of this class."
);
create_exception!(
    itg,
    LogError,
    Error,
    "A file that is no log of ITG, or none that is whole enough to be read."
);

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Io(error) => error.into(),
            Failure::Log(reason) => LogError::new_err(reason),
            Failure::Value(reason) => PyValueError::new_err(reason),
            Failure::Table(error) => Error::new_err(error.to_string()),
        }
    }
}

/// Packets of logs as a table, and facts on them as JSON.
#[pyfunction]
#[pyo3(signature = (paths, flows, filter, columns, threads))]
fn read(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    flows: Vec<u32>,
    filter: Option<&str>,
    columns: Option<Vec<String>>,
    threads: usize,
) -> PyResult<(Table, String)> {
    let request = Request { paths, flows, filter, interval: None, threads };
    Ok(py.detach(|| logs::read(&request, columns.as_deref()))?)
}

/// Report of logs as JSON, and their damage as JSON.
#[pyfunction]
#[pyo3(signature = (paths, flows, filter, interval, threads))]
fn report(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    flows: Vec<u32>,
    filter: Option<&str>,
    interval: Option<&str>,
    threads: usize,
) -> PyResult<(String, String)> {
    let request = Request { paths, flows, filter, interval, threads };
    Ok(py.detach(|| logs::report(&request))?)
}

/// An experiment as TOML, from JSON.
#[pyfunction]
fn experiment(json: &str) -> PyResult<String> {
    let value: serde_json::Value =
        serde_json::from_str(json).map_err(|error| PyValueError::new_err(error.to_string()))?;
    toml::to_string(&value)
        .map_err(|error| PyValueError::new_err(format!("no experiment file says this: {error}")))
}

/// The compiled part of the package.
#[pymodule]
fn _itg(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("Error", py.get_type::<Error>())?;
    module.add("LogError", py.get_type::<LogError>())?;
    module.add_class::<Table>()?;
    module.add_function(wrap_pyfunction!(read, module)?)?;
    module.add_function(wrap_pyfunction!(report, module)?)?;
    module.add_function(wrap_pyfunction!(experiment, module)?)
}
