import requests


def ask_price(order: str) -> float:
    return float(requests.get(f"https://prices/{order}").text)  # expect: D05
