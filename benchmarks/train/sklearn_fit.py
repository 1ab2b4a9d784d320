# SPDX-License-Identifier: Apache-2.0
"""Fits scikit-learn's perceptron to the diamonds as the regression trainer does: the same network, batch and epochs.

sklearn_fit.py DIAMONDS.csv EPOCHS BATCH prints `test: rmse=... rows=... epochs=... seconds=...`: the time is that of fit() alone.
"""
import csv
import sys
import time
import warnings

import numpy
from sklearn.neural_network import MLPRegressor

ORDERS = {
    "cut": ["Fair", "Good", "Very Good", "Premium", "Ideal"],
    "color": list("JIHGFED"),
    "clarity": ["I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"],
}


def main(path, epochs, batch):
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    names = [name for name in rows[0] if name not in ("", "price")]
    code = lambda name, text: ORDERS[name].index(text) if name in ORDERS else float(text)
    x = numpy.array([[code(name, row[name]) for name in names] for row in rows])
    y = numpy.array([float(row["price"]) for row in rows])

    order = numpy.random.RandomState(1).permutation(len(x))
    test, train = numpy.split(order, [round(0.2 * len(x))])
    train = train[round(0.1 * len(x)) :]  # the trainer's validation part
    mean, deviation = x[train].mean(0), x[train].std(0)
    centre, scale = y[train].mean(), y[train].std()
    # Single precision, as the trainer's, is the faster one here, too.
    x = ((x - mean) / deviation).clip(-6, 6).astype(numpy.float32)
    y = ((y - centre) / scale).astype(numpy.float32)

    model = MLPRegressor((64, 64), batch_size=batch, max_iter=epochs, alpha=0, tol=0, n_iter_no_change=epochs + 1)
    warnings.simplefilter("ignore")  # that the epochs asked for are all
    a, b = numpy.ascontiguousarray(x[train]), numpy.ascontiguousarray(y[train])
    begin = time.perf_counter()
    model.fit(a, b)
    seconds = time.perf_counter() - begin
    rmse = scale * numpy.sqrt(numpy.mean((model.predict(x[test]) - y[test]) ** 2))
    print(f"test: rmse={rmse:.1f} rows={len(train)} epochs={model.n_iter_} seconds={seconds:.6f}")


main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
