// What of HiGHS is left out of this build, to halve what a compiler has to do: the interior point method HiPO, which needs a
// BLAS, METIS and AMD and is off in HiGHS' own default build, the first-order solvers (PDLP), and quadratic programmes. No
// option of flowspace's leads here; whoever gets here all the same is told that it failed.

#include "ipm/IpxWrapper.h"
#include "lp_data/HighsSolve.h"
#include "pdlp/CupdlpWrapper.h"
#include "pdlp/HiPdlpWrapper.h"
#include "qpsolver/a_quass.hpp"

HighsStatus solveLpCupdlp(HighsLpSolverObject&) { return HighsStatus::kError; }
HighsStatus solveLpHiPdlp(HighsLpSolverObject&) { return HighsStatus::kError; }
QpAsmStatus solveqp(Instance&, Settings&, Statistics&, HighsModelStatus&,
                    HighsBasis&, HighsSolution&, HighsTimer&) {
  return QpAsmStatus::kError;
}
std::string qpModelStatusToString(const QpModelStatus) { return "left out"; }

namespace hipo {
Int Solver::load(const HighsLp&, const HighsHessian&) { return kStatusError; }
void Solver::setOptions(const HighsOptions&) {}
void Solver::setCallback(HighsCallback&) {}
void Solver::setTimer(const HighsTimer&) {}
void Solver::solve() {}
void Solver::getInteriorSolution(std::vector<double>&, std::vector<double>&, std::vector<double>&, std::vector<double>&,
                                 std::vector<double>&, std::vector<double>&, std::vector<double>&) const {}
Int Solver::getBasicSolution(std::vector<double>&, std::vector<double>&, std::vector<double>&, std::vector<double>&,
                             Int*, Int*) const {
  return kStatusError;
}
const Info& Solver::getInfo() const { return info_; }
void Solver::getOriginalDims(Int&, Int&) const {}
bool Solver::solved() const { return false; }
bool Solver::stopped() const { return false; }
bool Solver::failed() const { return true; }
}  // namespace hipo
