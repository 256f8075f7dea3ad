// Local steps ([local] of the job): between a pull and its push the worker takes several steps of an update rule on its
// own copy of the pulled rows, one for each part of the batch. What it then pushes depends on the method:
//
//   accumulate  the sum of the gradients of all steps. Downpour: Dean et al., "Large scale distributed deep networks",
//               NIPS 2012
//   delta       p - x, with the rows p as they were pulled and x after the steps, so that a server with the rule sgd
//               and a rate of 1 averages the workers' rows: local SGD (Stich, ICLR 2019), FedAvg (McMahan et al.,
//               AISTATS 2017), FedProx with prox > 0 (Li et al., MLSys 2020: g += prox (x - p)). With another rule on
//               the server: BMUF, SlowMo, DiLoCo, FedAdam.
//   elastic     d = moving_rate (p - x), and x += d. The worker keeps its rows x for the whole run; x and the servers'
//               rows move towards each other. EASGD, with momentum EAMSGD: Zhang, Choromanska, LeCun, "Deep learning
//               with elastic averaging SGD", NIPS 2015
//
// The state of the local rule, and x of `elastic`, are kept for every row that the worker has trained. They are not in
// checkpoints: a worker that starts again begins with none.
#pragma once

#include <memory>

#include "core/job/job.h"
#include "worker/models/model.h"
#include "worker/train/step_arrays.h"

namespace tarn::worker {

// On the CPU. `local.method` is not kNone. The model outlives it.
std::unique_ptr<StepArrays> MakeLocalArrays(const LocalSection& local, const Model& model);

}  // namespace tarn::worker
