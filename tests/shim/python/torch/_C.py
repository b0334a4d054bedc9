observers, history = [], []


def _cuda_beginAllocateCurrentThreadToPool(device, pool):
    pass


def _cuda_endAllocateToPool(device, pool):
    pass


def _cuda_attach_out_of_memory_observer(observer):
    observers.append(observer)
