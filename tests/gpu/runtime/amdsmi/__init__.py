import simulated

if simulated.HOST.get("no_amdsmi"):
    raise ModuleNotFoundError("No module named 'amdsmi'", name="amdsmi")
if simulated.HOST.get("amdsmi") == "is broken":
    raise ImportError("libz3.so.4: cannot open shared object file")
simulated.order.append("amdsmi")
