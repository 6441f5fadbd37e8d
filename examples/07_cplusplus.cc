// SPDX-License-Identifier: Apache-2.0
//
// Lesson 7: the same from C++. Handles become unique_ptr, an object becomes the user's pointer, and an exception stays on
// its side of the border: a callback turns it into a sentence and a number below 0.
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <vector>

#include <hdo/hdo.h>

struct Freed {
    void operator()(hdo_config *c) const { hdo_config_free(c); }
    void operator()(hdo_run *r) const { hdo_run_free(r); }
};
using Config = std::unique_ptr<hdo_config, Freed>;
using Run = std::unique_ptr<hdo_run, Freed>;

// Least squares: a line through points.
class Line {
    std::vector<double> x_, y_;

  public:
    Line() {
        for (int i = 0; i < 50; i++) {
            x_.push_back(i / 50.0);
            y_.push_back(2.0 * x_.back() - 0.5);
        }
    }
    double loss(const float *w) const {
        double sum = 0.0;
        for (std::size_t i = 0; i < x_.size(); i++) {
            double off = w[0] * x_[i] + w[1] - y_[i];
            sum += off * off;
        }
        return sum / static_cast<double>(x_.size());
    }
};

extern "C" int line_loss(void *user, hdo_call *call, const hdo_samples *, const float *x, double *loss) {
    try {
        *loss = static_cast<const Line *>(user)->loss(x);
        return 0;
    } catch (const std::exception &problem) {
        std::snprintf(call->message, call->message_cap, "%s", problem.what());
        return -1;
    }
}
extern "C" void line_delete(void *user) { delete static_cast<Line *>(user); }
static void need(hdo_status st, const hdo_error &e) {
    if (st != HDO_OK) throw std::runtime_error(e.msg);
}

int main() try {
    hdo_error e{};
    Config config(hdo_config_new(nullptr, &e));
    hdo_objective_def def{};
    def.struct_size = sizeof def;
    def.name = "line";
    def.dim = 2;
    def.loss = line_loss;
    def.destroy = line_delete; // the library ends it with the last configuration and run
    need(hdo_config_use_objective(config.get(), &def, new Line, &e), e);
    need(hdo_config_load_text(config.get(), "{steps: 900, population: {zo: {count: 6, estimator: fd-central, rv: 4, "
                                            "nu: 1.0e-3, lr: 0.1}}}", &e), e);
    hdo_run *raw = nullptr;
    need(hdo_run_new(&raw, config.get(), &e), e);
    Run run(raw);
    hdo_stop why = HDO_RUNNING;
    while (why == HDO_RUNNING) need(hdo_run_advance(run.get(), 100, &why, &e), e);
    std::vector<float> mean(hdo_run_dim(run.get()));
    need(hdo_run_mean(run.get(), mean.data(), &e), e);
    std::printf("y = %.2f x + %.2f\n", static_cast<double>(mean[0]), static_cast<double>(mean[1]));
    return Line().loss(mean.data()) < 1e-3 ? 0 : 1;
} catch (const std::exception &problem) {
    std::fprintf(stderr, "%s\n", problem.what());
    return 1;
}
