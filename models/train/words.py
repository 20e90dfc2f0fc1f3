# SPDX-License-Identifier: Apache-2.0
"""words.py: what the stories of corpus.py are made of."""

GIRLS = """Anna Lily Mia Emma Sara Rosa Nora Ella Ruth Clara Julia Alice Maria Lucy Jane Ivy Zoe Hanna Kate Vera
Olga Tina""".split()
BOYS = """Tom Ben Max Leo Sam Jack Paul Finn Adam Oscar Noah Luke Peter Hugo Mark Felix Otto Simon Carl David Ivan
Theo""".split()
PET_NAMES = "Spot Coco Bella Rex Pip Luna Biscuit Shadow Daisy Rusty Ginger Pepper Misty Bruno Snowy".split()
PETS = "cat dog rabbit hamster parrot pony duck goat turtle mouse".split()
COLOURS = "red blue green yellow white black brown orange purple pink grey golden".split()
FUR = "white black brown grey golden".split()

THINGS = """ball kite book drum hat scarf coat lamp box cup key rope basket bottle blanket pillow umbrella bag map
flute doll wagon bell brush candle clock comb mirror spoon bucket hammer ladder pencil puppet whistle
lantern ribbon boat ring mitten""".split()

# name, preposition
PLACES = dict(
    [
        ("kitchen", "in"),
        ("garden", "in"),
        ("bedroom", "in"),
        ("attic", "in"),
        ("cellar", "in"),
        ("barn", "in"),
        ("school", "at"),
        ("library", "in"),
        ("park", "in"),
        ("forest", "in"),
        ("market", "at"),
        ("bakery", "in"),
        ("lake", "at"),
        ("river", "at"),
        ("beach", "on"),
        ("farm", "on"),
        ("hill", "on"),
        ("bridge", "on"),
        ("station", "at"),
        ("harbour", "at"),
        ("castle", "in"),
        ("museum", "in"),
        ("meadow", "in"),
        ("village", "in"),
        ("tower", "in"),
        ("office", "in"),
        ("hospital", "in"),
        ("cave", "in"),
    ]
)

# plural, singular
FOODS = [
    ("apples", "apple"),
    ("pears", "pear"),
    ("plums", "plum"),
    ("cookies", "cookie"),
    ("cakes", "cake"),
    ("nuts", "nut"),
    ("eggs", "egg"),
    ("carrots", "carrot"),
    ("lemons", "lemon"),
    ("cherries", "cherry"),
    ("buns", "bun"),
    ("grapes", "grape"),
    ("shells", "shell"),
    ("stones", "stone"),
    ("flowers", "flower"),
    ("stamps", "stamp"),
    ("coins", "coin"),
    ("feathers", "feather"),
]
NUMBERS = "no one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen".split()

WEATHER = {
    "sunny": ["The sun was shining", "It was a sunny day", "The sky was blue and the day was sunny"],
    "rainy": ["It was raining", "It was a rainy day", "Rain was falling and the day was rainy"],
    "windy": ["It was very windy", "A strong wind blew and the day was windy", "It was a windy day"],
    "snowy": ["It was a snowy day", "Snow was falling and the day was snowy", "It was cold and snowy"],
    "foggy": ["It was a foggy day", "The fog was thick and the day was foggy", "It was quiet and foggy"],
    "cloudy": ["It was a cloudy day", "Big clouds hung in the sky and it was cloudy", "It was cool and cloudy"],
    "stormy": ["It was a stormy day", "Thunder rolled and the day was stormy", "It was dark and stormy"],
}
TIMES = [
    "One morning",
    "One afternoon",
    "One evening",
    "Early one day",
    "One Sunday",
    "One Monday",
    "Last week",
    "After breakfast",
    "After lunch",
    "Before dinner",
    "Long ago",
    "In spring",
    "In summer",
    "In autumn",
    "In winter",
    "On a quiet day",
]

HAPPY = ["happy", "glad", "proud", "cheerful"]
SAD = ["sad", "worried", "tired", "angry", "lonely", "bored", "scared", "hungry"]

# job, place, product, verb
JOBS = [
    ("baker", "bakery", "cakes", "baked"),
    ("farmer", "farm", "carrots", "pulled up"),
    ("teacher", "school", "stamps", "collected"),
    ("gardener", "garden", "flowers", "picked"),
    ("cook", "kitchen", "buns", "made"),
    ("fisher", "harbour", "shells", "gathered"),
    ("doctor", "hospital", "lemons", "bought"),
    ("guard", "castle", "coins", "counted"),
    ("painter", "museum", "feathers", "painted"),
    ("miner", "cave", "stones", "dug up"),
]
RIDES = ["bus", "train", "boat", "cart", "bike", "sled", "car", "horse"]
GAMES = [
    ("race", "ran"),
    ("swimming contest", "swam"),
    ("singing contest", "sang"),
    ("chess game", "played"),
    ("dancing contest", "danced"),
    ("jumping contest", "jumped"),
    ("drawing contest", "drew"),
    ("climbing contest", "climbed"),
]
TRAITS = [
    "kind",
    "brave",
    "clever",
    "shy",
    "funny",
    "quiet",
    "friendly",
    "curious",
    "careful",
    "honest",
    "patient",
    "gentle",
]
FAMILY = ["mother", "father", "brother", "sister", "uncle", "aunt", "grandmother", "grandfather", "neighbour", "cousin"]
