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

/// The texts of a column in their order, and the place of each number among them.
#[derive(Debug)]
pub struct Texts {
    ordered: ArrayRef,
    places: Vec<i32>,
}

impl Texts {
    /// A column with these texts in the place of their numbers.
    fn column(&self, numbers: &Int32Array) -> ArrayRef {
        let place = |number: i32| {
            let known = usize::try_from(number).ok().and_then(|number| self.places.get(number));
            known.copied().unwrap_or_default()
        };
        let keys = if self.places.is_sorted() {
            numbers.clone()
        } else {
            numbers.unary::<_, Int32Type>(place)
        };
        Arc::new(DictionaryArray::<Int32Type>::new(keys, Arc::clone(&self.ordered)))
    }
}

impl Dictionaries {
    /// The texts of each column. Their order does not say which thread met them first.
    #[must_use]
    pub fn texts(&self) -> Vec<Texts> {
        let texts = self.0.iter().map(|texts| {
            let texts = texts.lock().unwrap_or_else(PoisonError::into_inner);
            let mut places = vec![0; texts.len()];
            for (place, &number) in (0..).zip(texts.values()) {
                if let Some(known) =
                    usize::try_from(number).ok().and_then(|number| places.get_mut(number))
                {
                    *known = place;
                }
            }
            let ordered = Arc::new(texts.keys().map(Some).collect::<StringArray>());
            Texts { ordered, places }
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
    pub fn finish(selection: &Selection, columns: Vec<ArrayRef>, texts: &[Texts]) -> Vec<ArrayRef> {
        let with_texts = |(place, column): (Option<usize>, ArrayRef)| {
            let numbers = column.as_any().downcast_ref::<Int32Array>();
            match (place, numbers) {
                (Some(place), Some(numbers)) => texts[place].column(numbers),
                _ => column,
            }
        };
        selection.columns().map(|column| column.text).zip(columns).map(with_texts).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_in_their_order_whoever_met_them_first() {
        let selection = Selection::of(&["name".to_owned()]);
        let selection = selection.expect("a column");
        let of = |met: &[Option<&str>]| {
            let texts = Dictionaries::default();
            let columns: Vec<_> = selection
                .columns()
                .map(|column| {
                    let stretches: Vec<_> = met.iter().map(|&text| (text, 2)).collect();
                    MakeColumn::texts(&texts, column.text.expect("a text"), &stretches)
                })
                .collect();
            Dictionaries::finish(&selection, columns, &texts.texts()).swap_remove(0)
        };
        let column = of(&[Some("c"), None, Some("a"), Some("b"), Some("c")]);
        let column = column.as_any().downcast_ref::<DictionaryArray<Int32Type>>().expect("texts");
        let values = column.values().as_any().downcast_ref::<StringArray>().expect("texts");
        assert_eq!(values.iter().flatten().collect::<Vec<_>>(), ["a", "b", "c"]);
        let keys: Vec<_> = column.keys().iter().step_by(2).collect();
        assert_eq!(keys, [Some(2), None, Some(0), Some(1), Some(2)]);
        assert_eq!(of(&[None]).null_count(), 2);
    }
}
