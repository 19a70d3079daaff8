import simulated

if simulated.HOST.get("no_amdsmi"):
    raise ModuleNotFoundError("No module named 'amdsmi'", name="amdsmi")
simulated.order.append("amdsmi")
