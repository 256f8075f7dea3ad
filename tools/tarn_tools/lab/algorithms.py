"""The algorithms of the laboratory: names for settings of a job, each with its hook and its paper.

A new algorithm is an entry here and the code that its settings name: an update rule (kernels/rules), a consistency
policy (server/clock), a worker rule (worker/train/local_rules.h) or a codec. Entries of different hooks combine.
"""

import dataclasses

HOOKS = ("consistency", "server", "worker", "codec")


@dataclasses.dataclass(frozen=True)
class Algorithm:
    name: str
    hook: str
    paper: str
    settings: dict  # key of the job file -> value
    keys: tuple = ()  # keys of the job file that tune it, with their defaults where the settings have none
    what: str = ""

    def line(self):
        return f"{self.name:<22}  {self.hook:<11}  {self.paper}  [{', '.join(self.keys) or '-'}]"


def _consistency(name, paper, settings, keys=(), what=""):
    return Algorithm(name, "consistency", paper, settings, keys, what)


def _server(name, paper, kind, keys=(), what="", mode="asp"):
    settings = {"optimizer.kind": kind} if mode is None else {"consistency.mode": mode, "optimizer.kind": kind}
    return Algorithm(name, "server", paper, settings, ("optimizer.learning_rate", *keys), what)


def _codec(name, paper, settings, keys=(), what=""):
    return Algorithm(name, "codec", paper, settings, keys, what)


ALGORITHMS = (
    _consistency("bsp", "Valiant 1990", {"consistency.mode": "bsp"}, (), "all workers wait for each other at every batch"),
    _consistency("ssp", "Ho et al., NIPS 2013", {"consistency.mode": "ssp", "consistency.staleness": 4},
                 ("consistency.staleness",), "workers are at most `staleness` batches apart"),
    _consistency("asp", "Recht et al., NIPS 2011", {"consistency.mode": "asp"}, (), "no worker waits"),
    _server("sgd", "Robbins and Monro 1951", "sgd", mode=None),
    _server("momentum", "Polyak 1964", "momentum", ("optimizer.momentum",), mode=None),
    _server("nesterov", "Nesterov 1983; Sutskever et al., ICML 2013", "nesterov", ("optimizer.momentum",), mode=None),
    _server("adagrad", "Duchi, Hazan, Singer, JMLR 2011", "adagrad", ("optimizer.initial_accumulator", "optimizer.epsilon"),
            mode=None),
    _server("row_wise_adagrad", "Naumov et al. 2019 (DLRM)", "row_wise_adagrad",
            ("optimizer.initial_accumulator", "optimizer.epsilon"), mode=None),
    _server("rmsprop", "Tieleman and Hinton 2012", "rmsprop", ("optimizer.epsilon",), mode=None),
    _server("adam", "Kingma and Ba, ICLR 2015", "adam", ("optimizer.beta1", "optimizer.beta2"), mode=None),
    _server("adamw", "Loshchilov and Hutter, ICLR 2019", "adamw", ("optimizer.weight_decay",), mode=None),
    _server("ftrl", "McMahan et al., KDD 2013", "ftrl", ("optimizer.ftrl_l1", "optimizer.ftrl_l2", "optimizer.ftrl_beta"), mode=None),
    _server("signum", "Bernstein et al., ICML 2018", "signum", ("optimizer.beta1",), mode=None),
    _server("staleness_aware", "Zhang et al., IJCAI 2016", "staleness_aware_sgd", (), "rate divided by the gradient delay"),
    _server("delay_adaptive", "Koloskova, Stich, Jaggi, NeurIPS 2022", "delay_adaptive_sgd", (),
            "rate reduced for delays above the mean"),
    _server("dc_asgd", "Zheng et al., ICML 2017", "dc_asgd", ("optimizer.dc_lambda",),
            "compensates the delay with the squared gradient"),
    _server("dc_asgd_adaptive", "Zheng et al., ICML 2017", "dc_asgd_adaptive", ("optimizer.dc_lambda0", "optimizer.rho")),
    _server("gap_aware", "Barkai, Hakimi, Schuster, ICLR 2020", "gap_aware", ("optimizer.momentum", "optimizer.rho"),
            "divides by the distance that the row has moved since it was pulled"),
    _codec("bf16", "Kalamkar et al. 2019", {"tables.*.push_codec": "bf16"}),
    _codec("fp16", "Micikevicius et al., ICLR 2018", {"tables.*.push_codec": "fp16"}),
    _codec("int8", "Dettmers, ICLR 2016", {"tables.*.push_codec": "int8"}),
    _codec("top_k", "Aji and Heafield 2017; Stich et al., NeurIPS 2018",
           {"tables.*.push_codec": "topk", "tables.*.push_topk": 0.1}, ("tables.*.push_topk",),
           "the largest values, the rest is added to the next gradient"),
)

BY_NAME = {algorithm.name: algorithm for algorithm in ALGORITHMS}
