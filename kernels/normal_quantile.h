// The inverse of the standard normal distribution's CDF in double: PPND16 of algorithm AS 241 (Wichura, Applied
// Statistics 37, 1988), with relative error below 1e-14 and the same bits on every x86-64.
#pragma once

#include <cmath>

#include "kernels/math.h"

namespace tarn::kernels::math {

// (c[7] x^7 + ... + c[0]) / (d[7] x^7 + ... + d[0]).
inline double Ratio(const double (&c)[8], const double (&d)[8], double x) {
  double p = c[7], q = d[7];
  for (int i = 6; i >= 0; --i) {
    p = p * x + c[i];
    q = q * x + d[i];
  }
  return p / q;
}

// PPND16 of AS 241; the names of the coefficients are the paper's.
inline constexpr double kPpndA[8] = {3.3871328727963666080e0,  1.3314166789178437745e+2, 1.9715909503065514427e+3,
                                     1.3731693765509461125e+4, 4.5921953931549871457e+4, 6.7265770927008700853e+4,
                                     3.3430575583588128105e+4, 2.5090809287301226727e+3};
inline constexpr double kPpndB[8] = {1.0,
                                     4.2313330701600911252e+1,
                                     6.8718700749205790830e+2,
                                     5.3941960214247511077e+3,
                                     2.1213794301586595867e+4,
                                     3.9307895800092710610e+4,
                                     2.8729085735721942674e+4,
                                     5.2264952788528545610e+3};
inline constexpr double kPpndC[8] = {1.42343711074968357734e0,  4.63033784615654529590e0, 5.76949722146069140550e0,
                                     3.64784832476320460504e0,  1.27045825245236838258e0, 2.41780725177450611770e-1,
                                     2.27238449892691845833e-2, 7.74545014278341407640e-4};
inline constexpr double kPpndD[8] = {1.0,
                                     2.05319162663775882187e0,
                                     1.67638483018380384940e0,
                                     6.89767334985100004550e-1,
                                     1.48103976427480074590e-1,
                                     1.51986665636164571966e-2,
                                     5.47593808499534494600e-4,
                                     1.05075007164441684324e-9};
inline constexpr double kPpndE[8] = {6.65790464350110377720e0,  5.46378491116411436990e0,  1.78482653991729133580e0,
                                     2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
                                     2.71155556874348757815e-5, 2.01033439929228813265e-7};
inline constexpr double kPpndF[8] = {1.0,
                                     5.99832206555887937690e-1,
                                     1.36929880922735805310e-1,
                                     1.48753612908506148525e-2,
                                     7.86869131145613259100e-4,
                                     1.84631831751005468180e-5,
                                     1.42151175831644588870e-7,
                                     2.04426310338993978564e-15};

// NormalQuantile is the z with Phi(z) = u, u in (0, 1), in three pieces by the distance q = u - 1/2 from the middle.
// CentralQuantile and TailQuantile have no branches; outside their range their result is undefined.
inline bool IsCentral(double q) { return std::abs(q) <= 0.425; }

inline double CentralQuantile(double q) { return q * Ratio(kPpndA, kPpndB, 0.180625 - q * q); }

// sqrt(-log(p)), where p is the probability of the tail beyond u.
inline double TailDistance(double u) { return std::sqrt(-Log(u < 0.5 ? u : 1.0 - u)); }

// For u that is neither central nor in a far tail.
inline double TailQuantile(double u) {
  const double z = Ratio(kPpndC, kPpndD, TailDistance(u) - 1.6);
  return u < 0.5 ? -z : z;
}

inline bool IsFarTail(double u) { return TailDistance(u) > 5.0; }

inline double NormalQuantile(double u) {
  const double q = u - 0.5;
  if (IsCentral(q)) return CentralQuantile(q);
  if (!IsFarTail(u)) return TailQuantile(u);
  const double z = Ratio(kPpndE, kPpndF, TailDistance(u) - 5.0);
  return u < 0.5 ? -z : z;
}

}  // namespace tarn::kernels::math
