"""The algorithms of the laboratory: names for settings of a job, each with its hook and its paper.

A new algorithm is an entry here and the code that its settings name: a consistency policy (server/clock), an update
rule (kernels/rules), a worker rule (worker/train/local_arrays.h) or a codec. Entries of different hooks combine.
"""

import dataclasses

# In this order the settings of combined algorithms apply: a later one does not change what an earlier one has set.
HOOKS = ("consistency", "server", "worker", "codec")
SERVER_RATE, LOCAL_RATE = "optimizer.learning_rate", "local.learning_rate"
WORKERS, SHARE_OF_A_WORKER = "{workers}", "1/{workers}"  # values that follow from fleet.workers


@dataclasses.dataclass(frozen=True)
class Algorithm:
    name: str
    hook: str
    paper: str
    settings: dict  # key of the job file -> value
    keys: tuple = ()  # keys of the job file that tune it
    rate: str = SERVER_RATE  # the key that "rate" of a grid stands for

    def line(self):
        return f"{self.name:<22}  {self.hook:<11}  {self.paper}  [{', '.join(self.keys) or '-'}]"


def _consistency(name, paper, settings, keys=()):
    return Algorithm(name, "consistency", paper, settings, keys)


def _server(name, paper, kind, keys=(), **settings):
    """A rule of the servers in any mode."""
    return Algorithm(name, "server", paper, {"optimizer.kind": kind, **settings}, (SERVER_RATE, *keys))


def _async(name, paper, kind, keys=(), **settings):
    """A rule for pushes that are applied when they arrive: in asp, unless a consistency algorithm sets another mode."""
    return Algorithm(name, "server", paper, {"consistency.mode": "asp", "optimizer.kind": kind, **settings}, (SERVER_RATE, *keys))


def _worker(name, paper, method, steps, mode="bsp", server="sgd", rate=1.0, keys=(), **settings):
    """Local steps. Their pushes are not the gradient of one batch, so the servers add no l2."""
    return Algorithm(
        name, "worker", paper,
        {"local.method": method, "local.steps": steps, "consistency.mode": mode, "optimizer.kind": server,
         SERVER_RATE: rate, "optimizer.l2": 0.0, **{key.replace("__", "."): value for key, value in settings.items()}},
        ("local.steps", LOCAL_RATE, SERVER_RATE, *keys), LOCAL_RATE)


def _codec(name, paper, settings, keys=()):
    return Algorithm(name, "codec", paper, settings, keys)


ALGORITHMS = (
    _consistency("bsp", "Valiant, CACM 1990", {"consistency.mode": "bsp"}),
    _consistency("backup_workers", "Chen et al. 2016; K-sync SGD of Dutta et al., AISTATS 2018",
                 {"consistency.mode": "bsp", "consistency.backup_workers": 1, "train.prefetch": 0}, ("consistency.backup_workers",)),
    _consistency("ssp", "Ho et al., NIPS 2013", {"consistency.mode": "ssp", "consistency.staleness": 4}, ("consistency.staleness",)),
    _consistency("bounded_delay", "Li et al., OSDI 2014: a worker's own updates may be late as well",
                 {"consistency.mode": "ssp", "consistency.staleness": 4, "consistency.own_pushes": "bounded", "train.prefetch": 2},
                 ("consistency.staleness", "train.prefetch")),
    _consistency("dynamic_ssp", "Zhao et al., ICDCS 2019",
                 {"consistency.mode": "ssp", "consistency.staleness": 3, "consistency.staleness_range": 12},
                 ("consistency.staleness", "consistency.staleness_range")),
    _consistency("essp", "Dai et al., AAAI 2015: servers send cached rows whenever a clock opens",
                 {"consistency.mode": "ssp", "consistency.staleness": 4, "consistency.worker_cache": "16MiB",
                  "consistency.own_pushes": "bounded", "consistency.refresh_rows": True},
                 ("consistency.staleness", "consistency.worker_cache")),
    _consistency("asp", "Recht et al., NIPS 2011", {"consistency.mode": "asp"}),
    _server("sgd", "Robbins and Monro 1951", "sgd"),
    _server("momentum", "Polyak 1964", "momentum", ("optimizer.momentum",)),
    _server("nesterov", "Sutskever et al., ICML 2013", "nesterov", ("optimizer.momentum",)),
    _server("adagrad", "Duchi, Hazan, Singer, JMLR 2011", "adagrad", ("optimizer.initial_accumulator", "optimizer.epsilon")),
    _server("row_wise_adagrad", "Mudigere et al., ISCA 2022", "row_wise_adagrad", ("optimizer.initial_accumulator", "optimizer.epsilon")),
    _server("rmsprop", "Tieleman and Hinton 2012", "rmsprop", ("optimizer.rho", "optimizer.epsilon")),
    _server("adam", "Kingma and Ba, ICLR 2015", "adam", ("optimizer.beta1", "optimizer.beta2")),
    _server("adamw", "Loshchilov and Hutter, ICLR 2019", "adamw", ("optimizer.beta1", "optimizer.beta2", "optimizer.weight_decay")),
    _server("ftrl", "McMahan et al., KDD 2013", "ftrl", ("optimizer.ftrl_l1", "optimizer.ftrl_l2", "optimizer.ftrl_beta")),
    _server("signum", "Bernstein et al., ICML 2018", "signum", ("optimizer.beta1",)),
    _async("staleness_aware", "Zhang et al., IJCAI 2016", "staleness_aware_sgd"),
    _async("exponential_staleness", "Chan and Lane, Interspeech 2014", "exponential_staleness_sgd", ("optimizer.delay_decay",)),
    _async("delay_adaptive", "Koloskova, Stich, Jaggi, NeurIPS 2022", "delay_adaptive_sgd"),
    _async("ringmaster", "Maranjyan, Tyurin, Richtarik, ICML 2025", "delay_threshold_sgd", ("optimizer.delay_max",)),
    _async("dc_asgd", "Zheng et al., ICML 2017", "dc_asgd", ("optimizer.dc_lambda",)),
    _async("dc_asgd_adaptive", "Zheng et al., ICML 2017", "dc_asgd_adaptive", ("optimizer.dc_lambda0", "optimizer.rho")),
    _async("gap_aware", "Barkai, Hakimi, Schuster, ICLR 2020", "gap_aware", ("optimizer.momentum", "optimizer.rho")),
    _async("k_batch_async", "Dutta et al., AISTATS 2018", "buffered_sgd", ("optimizer.buffer",)),
    _async("k_async", "Dutta et al., AISTATS 2018; workers do not wait for their update", "k_async_sgd", ("optimizer.workers_min",)),
    _worker("downpour", "Dean et al., NIPS 2012", "accumulate", 4, mode="asp", server="adagrad", rate=0.05),
    _worker("local_sgd", "Stich, ICLR 2019", "delta", 8),
    _worker("post_local_sgd", "Lin et al., ICLR 2020", "delta", 4, keys=("local.from_epoch",), local__from_epoch=2),
    _worker("fedavg", "McMahan et al., AISTATS 2017", "delta", 32),
    _worker("fedprox", "Li et al., MLSys 2020", "delta", 32, local__prox=0.01, keys=("local.prox",)),
    _worker("fedavgm", "Hsu, Qi, Brown 2019", "delta", 32, server="momentum", optimizer__momentum=0.5, keys=("optimizer.momentum",)),
    _worker("fed_adagrad", "Reddi et al., ICLR 2021", "delta", 8, server="fed_adagrad", rate=0.1, keys=("optimizer.adaptivity",)),
    _worker("fed_adam", "Reddi et al., ICLR 2021", "delta", 8, server="fed_adam", rate=0.01, keys=("optimizer.adaptivity",)),
    _worker("fed_yogi", "Reddi et al., ICLR 2021", "delta", 8, server="fed_yogi", rate=0.01, keys=("optimizer.adaptivity",)),
    _worker("fedbuff", "Nguyen et al., AISTATS 2022", "delta", 8, mode="asp", server="buffered_sgd",
            optimizer__delay_power=0.5, keys=("optimizer.buffer", "optimizer.delay_power")),
    _worker("bmuf", "Chen and Huo, ICASSP 2016", "delta", 8, server="momentum", optimizer__momentum=0.75, keys=("optimizer.momentum",)),
    _worker("slowmo", "Wang et al., ICLR 2020", "delta", 8, server="momentum", optimizer__momentum=0.5, local__kind="momentum",
            keys=("optimizer.momentum", "local.momentum")),
    _worker("diloco", "Douillard et al. 2023", "delta", 32, server="nesterov", rate=0.7, local__kind="adamw",
            keys=("optimizer.momentum",)),
    _worker("async_diloco", "Liu et al. 2024", "delta", 32, mode="asp", server="delayed_nesterov", rate=0.7, local__kind="adamw",
            optimizer__buffer=WORKERS, keys=("optimizer.momentum", "optimizer.buffer")),
    _worker("geo_sgd", "Paddle, GEO-SGD 2020", "delta", 8, mode="asp", rate=SHARE_OF_A_WORKER),
    _worker("easgd", "Zhang, Choromanska, LeCun, NIPS 2015", "elastic", 4, rate=WORKERS, keys=("local.moving_rate",)),
    _worker("async_easgd", "Zhang, Choromanska, LeCun, NIPS 2015", "elastic", 4, mode="asp", keys=("local.moving_rate",)),
    _worker("eamsgd", "Zhang, Choromanska, LeCun, NIPS 2015", "elastic", 4, mode="asp", local__kind="nesterov",
            keys=("local.moving_rate", "local.momentum")),
    _worker("shadow_sync", "Zheng et al. 2020", "elastic", 4, mode="asp", train__prefetch=1, keys=("local.moving_rate",)),
    _codec("bf16", "Kalamkar et al. 2019", {"tables.*.push_codec": "bf16"}),
    _codec("fp16", "Micikevicius et al., ICLR 2018", {"tables.*.push_codec": "fp16"}),
    _codec("int8", "Dettmers, ICLR 2016", {"tables.*.push_codec": "int8"}),
    _codec("top_k", "Aji and Heafield 2017; Stich et al., NeurIPS 2018",
           {"tables.*.push_codec": "topk", "tables.*.push_topk": 0.1}, ("tables.*.push_topk",)),
    _codec("dgc", "Lin et al., ICLR 2018",
           {"tables.*.push_codec": "topk", "tables.*.push_topk": 0.1, "tables.*.push_momentum": 0.9, "tables.*.push_warmup_clocks": 100},
           ("tables.*.push_topk", "tables.*.push_momentum", "tables.*.push_warmup_clocks")),
    _codec("powersgd", "Vogels et al., NeurIPS 2019; dense tables, each worker's gradient by itself",
           {"tables.*.push_codec": "low_rank", "tables.*.push_rank": 2}, ("tables.*.push_rank",)),
    _codec("qsgd", "Alistarh et al., NIPS 2017", {"tables.*.push_codec": "qsgd"}),
    _codec("terngrad", "Wen et al., NIPS 2017", {"tables.*.push_codec": "ternary"}),
    _codec("ef_signsgd", "Karimireddy et al., ICML 2019", {"tables.*.push_codec": "sign"}),
    _codec("one_bit_sgd", "Seide et al., Interspeech 2014", {"tables.*.push_codec": "one_bit"}),
)

BY_NAME = {algorithm.name: algorithm for algorithm in ALGORITHMS}
