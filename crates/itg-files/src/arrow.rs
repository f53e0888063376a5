//! Packets as Arrow arrays.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, DictionaryArray, Int32Array, Int64Array, StringArray};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_schema::{DataType, Field, Schema};

use crate::columns::{MakeColumn, Selection, Stretches, TEXTS};

/// Names and types of the columns of a selection, texts being of the type `text`.
#[must_use]
pub fn schema(selection: &Selection, text: &DataType) -> Schema {
    let fields = selection.columns().map(|column| {
        let kind = if column.text.is_some() { text.clone() } else { DataType::Int64 };
        Field::new(column.name, kind, column.nullable)
    });
    Schema::new(fields.collect::<Vec<_>>())
}

/// The different texts of each column, which grow while packets are listed: columns then hold their numbers, and
/// [`Dictionaries::finish`] makes texts of them.
#[derive(Debug, Default)]
pub struct Dictionaries([Mutex<BTreeMap<String, i32>>; TEXTS]);

impl MakeColumn for Dictionaries {
    type Column = ArrayRef;

    fn numbers(&self, values: Vec<i64>, known: Option<impl Fn(usize) -> bool>) -> ArrayRef {
        let known = known.map(|known| BooleanBuffer::collect_bool(values.len(), known));
        Arc::new(Int64Array::new(values.into(), known.map(NullBuffer::new)))
    }

    fn texts(&self, text: usize, stretches: &Stretches<'_>) -> ArrayRef {
        let mut texts = self.0[text].lock().unwrap_or_else(PoisonError::into_inner);
        let mut key = |text: &str| {
            if let Some(&key) = texts.get(text) {
                return Some(key);
            }
            let key = i32::try_from(texts.len()).ok()?;
            texts.insert(text.to_owned(), key);
            Some(key)
        };
        let keys: Vec<_> =
            stretches.iter().map(|&(text, packets)| (text.and_then(&mut key), packets)).collect();
        drop(texts);
        let unknown = keys.iter().any(|(key, _)| key.is_none());
        if !unknown {
            let all = keys.iter().map(|&(key, packets)| (key.unwrap_or_default(), packets));
            let mut values = Vec::with_capacity(keys.iter().map(|(_, packets)| packets).sum());
            all.for_each(|(key, packets)| values.resize(values.len() + packets, key));
            return Arc::new(Int32Array::from(values));
        }
        let all = keys.into_iter().flat_map(|(key, packets)| std::iter::repeat_n(key, packets));
        Arc::new(all.collect::<Int32Array>())
    }
}

impl Dictionaries {
    /// The texts of each column, in the order of their numbers.
    #[must_use]
    pub fn texts(&self) -> Vec<ArrayRef> {
        let texts = self.0.iter().map(|texts| {
            let texts = texts.lock().unwrap_or_else(PoisonError::into_inner);
            let mut ordered: Vec<(i32, &str)> =
                texts.iter().map(|(text, &key)| (key, text.as_str())).collect();
            ordered.sort_unstable();
            Arc::new(ordered.into_iter().map(|(_, text)| Some(text)).collect::<StringArray>())
                as ArrayRef
        });
        texts.collect()
    }

    /// Type of the columns of text.
    #[must_use]
    pub fn data_type() -> DataType {
        DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
    }

    /// Puts [texts](Self::texts) in the place of their numbers in the columns of a selection.
    #[must_use]
    pub fn finish(
        selection: &Selection,
        columns: Vec<ArrayRef>,
        texts: &[ArrayRef],
    ) -> Vec<ArrayRef> {
        let with_texts = |(place, column): (Option<usize>, ArrayRef)| {
            let keys = column.as_any().downcast_ref::<Int32Array>();
            match (place, keys) {
                (Some(place), Some(keys)) => Arc::new(DictionaryArray::<Int32Type>::new(
                    keys.clone(),
                    Arc::clone(&texts[place]),
                )),
                _ => column,
            }
        };
        selection.columns().map(|column| column.text).zip(columns).map(with_texts).collect()
    }
}
