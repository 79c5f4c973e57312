"""NumPy's arrays in the objects of an open file. PyTorch is not needed."""

from __future__ import annotations

import pickle
import re

import pytest
from conftest import needs_numpy, np

import torch2carton

pytestmark = needs_numpy

FIELDS = [("a", "i4"), ("b", ">f8"), ("pair", "f4", (2,))]


def arrays():
    """Returns arrays of NumPy's subclasses that are data alone, by name."""
    records = np.rec.array([(1, 2.5, (3, 4)), (5, 6.5, (7, 8))], dtype=FIELDS)
    return {
        "matrix": np.matrix([[1, 2], [3, 4.5]]),
        "matrix in the order of Fortran": np.matrix(np.asfortranarray(np.arange(6).reshape(2, 3))),
        "empty matrix": np.matrix(np.zeros((0, 3), "f2")),
        "matrix of objects": np.matrix([[None, "x"]], dtype=object),
        "records": records,
        "an element": records[1],
        "numbers as records": np.arange(3).view(np.recarray),
        "fields without records": np.zeros(2, FIELDS).view(np.recarray),
        "records without a class": np.asarray(records),
        "records of objects": np.rec.array([(1, "x")], dtype=[("a", "i4"), ("b", object)]),
        "nested records": np.rec.array([((1,), 2)], dtype=[("in", [("x", "u1")]), ("y", "i2")]),
    }


def loaded(data):
    return torch2carton.open(data).objects


@pytest.mark.parametrize("name", list(arrays()) if np is not None else [])
@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_matrices_and_records_are_arrays(name, protocol):
    data = pickle.dumps([arrays()[name]], protocol)
    expected, found = pickle.loads(data)[0], loaded(data)[0]
    assert type(found) is type(expected) and found.dtype == expected.dtype and found.dtype.type is expected.dtype.type
    assert found.shape == expected.shape and found.strides == expected.strides and repr(found) == repr(expected)
    if not found.dtype.hasobject:
        assert found.tobytes() == expected.tobytes()


def test_records_of_every_release_of_numpy():
    records = arrays()["records"]
    for home in (b"numpy", b"numpy.rec", b"numpy.core.records", b"numpy._core.records"):
        found = loaded(re.sub(rb"c[a-z_.]+\n(recarray|record)\n", b"c" + home + rb"\n\1\n", pickle.dumps(records, 0)))
        assert type(found) is np.recarray and found.b.tolist() == [2.5, 6.5] and found[0].pair.tolist() == [3, 4]
    matrix = pickle.dumps(np.matrix([[1, 2]]), 0).replace(b"numpy\nmatrix", b"numpy.matrixlib.defmatrix\nmatrix")
    assert type(loaded(matrix)) is np.matrix


@pytest.mark.parametrize("kind", ["memmap", "chararray", "ma.MaskedArray", "float64", "generic"])
def test_other_classes_are_records_of_calls(kind):
    data = pickle.dumps(np.matrix([[1, 2]]), 0).replace(b"numpy\nmatrix", f"numpy\n{kind}".encode())
    found = loaded(data)
    assert isinstance(found, torch2carton.Object) and found.name == "_reconstruct"


def test_a_matrix_of_a_wrong_size_is_refused():
    data = pickle.dumps(np.matrix([[1, 2]]), 0).replace(b"I1\nI2\n", b"I1\nI9\n")
    assert data != pickle.dumps(np.matrix([[1, 2]]), 0)
    with pytest.raises(torch2carton.Error, match="72 bytes"):
        loaded(data)
