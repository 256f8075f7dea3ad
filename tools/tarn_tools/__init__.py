"""The Python behind the commands of tools/, for Python 3.11. Standard library only, except predict (NumPy) and lab
(Optuna for [search], pyarrow if installed)."""
