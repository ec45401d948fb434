import semel

app = semel.App()
