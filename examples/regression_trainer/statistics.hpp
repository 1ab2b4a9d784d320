// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Dense>
#include <cmath>
#include <cstddef>

namespace trainer {

/// Count, means, and sums of products of deviations, of the features and (last) the target of some samples. Two of them
/// merge into one (Chan, Golub and LeVeque 1979), so a dataset is gone through once, in any pieces.
struct comoments {
  double count = 0;
  Eigen::VectorXd mean;
  Eigen::MatrixXd products;

  /// Of `rows` samples; `x` holds `columns` features each.
  static comoments of(const float* x, const float* y, std::size_t rows, std::size_t columns) {
    using row_major = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    const Eigen::Index n = rows, d = columns;
    Eigen::MatrixXd all(n, d + 1);
    all << Eigen::Map<const row_major>(x, n, d).cast<double>(), Eigen::Map<const Eigen::VectorXf>(y, n).cast<double>();
    comoments result{double(n), all.colwise().mean(), {}};
    all.rowwise() -= result.mean.transpose();
    result.products = all.transpose() * all;
    return result;
  }
  void merge(const comoments& other) {
    if (count == 0) return void(*this = other);
    const double total = count + other.count;
    const Eigen::VectorXd shift = other.mean - mean;
    products += other.products + shift * shift.transpose() * (count * other.count / total);
    mean += shift * (other.count / total);
    count = total;
  }
  /// Standard deviations; 1 where a column is constant.
  Eigen::VectorXd deviation() const {
    const Eigen::VectorXd result = (products.diagonal() / count).cwiseSqrt();
    return (result.array() > 0).select(result, 1.0);
  }
  /// Ordinary least squares: a slope for each feature, and last the intercept.
  Eigen::VectorXd least_squares() const {
    const Eigen::Index d = mean.size() - 1;
    // Scaled, and with the least norm where columns depend on each other, as one-hot columns do.
    const Eigen::VectorXd scale = deviation().head(d).cwiseInverse();
    const Eigen::MatrixXd normal = scale.asDiagonal() * products.topLeftCorner(d, d) * scale.asDiagonal();
    const Eigen::VectorXd right = scale.asDiagonal() * products.col(d).head(d);
    Eigen::VectorXd result(d + 1);
    result.head(d) = scale.asDiagonal() * normal.completeOrthogonalDecomposition().solve(right);
    result(d) = mean(d) - result.head(d).dot(mean.head(d));
    return result;
  }
};

/// How far predictions are from the truth.
class scores {
 public:
  void add(double prediction, double truth) {
    const double error = prediction - truth, shift = truth - mean_;
    count_ += 1;
    squares_ += error * error;
    absolute_ += std::abs(error);
    mean_ += shift / count_;
    spread_ += shift * (truth - mean_);
  }
  double count() const { return count_; }
  double squares() const { return squares_; }
  double rmse() const { return std::sqrt(squares_ / count_); }
  double mae() const { return absolute_ / count_; }
  double r2() const { return 1 - squares_ / spread_; }

 private:
  double count_ = 0, squares_ = 0, absolute_ = 0, mean_ = 0, spread_ = 0;
};

}  // namespace trainer
