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
pub struct Dictionaries([Mutex<Dictionary>; TEXTS]);

#[derive(Debug, Default)]
struct Dictionary {
    numbers: BTreeMap<String, i32>,
    /// The longest column so far of each text alone, which others of it are parts of.
    uniform: BTreeMap<i32, Int32Array>,
}

impl Dictionary {
    /// The number of a text.
    fn number(&mut self, text: &str) -> Option<i32> {
        if let Some(&number) = self.numbers.get(text) {
            return Some(number);
        }
        let number = i32::try_from(self.numbers.len()).ok()?;
        self.numbers.insert(text.to_owned(), number);
        Some(number)
    }

    /// A column of one text alone.
    fn uniform(&mut self, number: i32, packets: usize) -> Int32Array {
        match self.uniform.get(&number) {
            Some(column) if column.len() >= packets => column.slice(0, packets),
            _ => {
                let column = Int32Array::from_value(number, packets);
                self.uniform.insert(number, column.clone());
                column
            }
        }
    }
}

impl MakeColumn for Dictionaries {
    type Column = ArrayRef;

    fn numbers(&self, values: Vec<i64>, known: Option<impl Fn(usize) -> bool>) -> ArrayRef {
        let known = known.map(|known| BooleanBuffer::collect_bool(values.len(), known));
        Arc::new(Int64Array::new(values.into(), known.map(NullBuffer::new)))
    }

    fn texts(&self, text: usize, stretches: &Stretches<'_>) -> ArrayRef {
        let mut texts = self.0[text].lock().unwrap_or_else(PoisonError::into_inner);
        let mut key = |text: &str| texts.number(text);
        let keys: Vec<_> =
            stretches.iter().map(|&(text, packets)| (text.and_then(&mut key), packets)).collect();
        let packets = keys.iter().map(|(_, packets)| packets).sum();
        if let Some(&(Some(first), _)) = keys.first()
            && keys.iter().all(|(key, _)| *key == Some(first))
        {
            return Arc::new(texts.uniform(first, packets));
        }
        drop(texts);
        let unknown = keys.iter().any(|(key, _)| key.is_none());
        if !unknown {
            let all = keys.iter().map(|&(key, packets)| (key.unwrap_or_default(), packets));
            let mut values = Vec::with_capacity(packets);
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
            let texts = &texts.numbers;
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

    /// Columns of one text share their numbers, and say the same as if each had its own.
    #[test]
    fn columns_of_one_text_have_that_text() {
        let selection = Selection::of(&["name".to_owned()]).expect("a column");
        let text = selection.columns().find_map(|column| column.text).expect("a text");
        let texts = Dictionaries::default();
        let batches = [("c", 3), ("c", 2), ("a", 2), ("c", 5), ("c", 4), ("b", 1), ("c", 3)];
        let columns = batches.map(|(name, packets)| {
            let halves = [(Some(name), packets - 1), (Some(name), 1)];
            MakeColumn::texts(&texts, text, &halves)
        });
        let met = texts.texts();
        for ((name, packets), column) in batches.into_iter().zip(columns) {
            let column = Dictionaries::finish(&selection, vec![column], &met).swap_remove(0);
            let column = column.as_any().downcast_ref::<DictionaryArray<Int32Type>>();
            let column = column.and_then(|column| column.downcast_dict::<StringArray>());
            let got: Vec<_> = column.expect("texts").into_iter().flatten().collect();
            assert_eq!(got, vec![name; packets]);
        }
    }
}
