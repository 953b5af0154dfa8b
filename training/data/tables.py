"""Small tables of common knowledge that the generators draw from."""

from __future__ import annotations


def _pairs(text: str) -> list[tuple[str, str]]:
    pairs = [item.split("=") for item in text.replace("\n", " ").split(";") if item.strip()]
    return [(a.strip(), b.strip()) for a, b in pairs]


CAPITALS = _pairs("""
France=Paris; Germany=Berlin; Italy=Rome; Spain=Madrid; Portugal=Lisbon; Greece=Athens; Poland=Warsaw;
Austria=Vienna; Hungary=Budapest; Norway=Oslo; Sweden=Stockholm; Finland=Helsinki; Denmark=Copenhagen;
Iceland=Reykjavik; Ireland=Dublin; the United Kingdom=London; Belgium=Brussels; the Netherlands=Amsterdam;
Switzerland=Bern; Romania=Bucharest; Bulgaria=Sofia; Serbia=Belgrade; Croatia=Zagreb; Ukraine=Kyiv;
Russia=Moscow; Turkey=Ankara; Egypt=Cairo; Morocco=Rabat; Algeria=Algiers; Tunisia=Tunis; Kenya=Nairobi;
Ethiopia=Addis Ababa; Ghana=Accra; Nigeria=Abuja; Senegal=Dakar; Uganda=Kampala; Zimbabwe=Harare; Angola=Luanda;
Japan=Tokyo; China=Beijing; South Korea=Seoul; North Korea=Pyongyang; Mongolia=Ulaanbaatar; India=New Delhi;
Pakistan=Islamabad; Nepal=Kathmandu; Bangladesh=Dhaka; Sri Lanka=Colombo; Thailand=Bangkok; Vietnam=Hanoi;
Cambodia=Phnom Penh; Laos=Vientiane; Malaysia=Kuala Lumpur; Indonesia=Jakarta; the Philippines=Manila;
Singapore=Singapore; Iran=Tehran; Iraq=Baghdad; Syria=Damascus; Jordan=Amman; Lebanon=Beirut; Saudi
Arabia=Riyadh; Qatar=Doha; Oman=Muscat; Yemen=Sanaa; Kuwait=Kuwait City; Afghanistan=Kabul; Kazakhstan=Astana;
Georgia=Tbilisi; Armenia=Yerevan; Azerbaijan=Baku; Canada=Ottawa; the United States=Washington; Mexico=Mexico
City; Cuba=Havana; Jamaica=Kingston; Haiti=Port-au-Prince; Guatemala=Guatemala City; Honduras=Tegucigalpa;
Nicaragua=Managua; Costa Rica=San Jose; Panama=Panama City; Colombia=Bogota; Venezuela=Caracas; Ecuador=Quito;
Peru=Lima; Bolivia=La Paz; Chile=Santiago; Argentina=Buenos Aires; Uruguay=Montevideo; Paraguay=Asuncion;
Brazil=Brasilia; Australia=Canberra; New Zealand=Wellington; Fiji=Suva; Estonia=Tallinn; Latvia=Riga;
Lithuania=Vilnius; Slovakia=Bratislava; Slovenia=Ljubljana; Albania=Tirana; Malta=Valletta; Cyprus=Nicosia;
Libya=Tripoli; Sudan=Khartoum; Somalia=Mogadishu; Rwanda=Kigali; Zambia=Lusaka; Namibia=Windhoek;
Madagascar=Antananarivo; Mali=Bamako""")

COLOURS = _pairs("""
grass=green; snow=white; coal=black; blood=red; a banana=yellow; a ripe tomato=red; a carrot=orange; a
lemon=yellow; a lime=green; an orange=orange; milk=white; chocolate=brown; a ripe strawberry=red; a
cucumber=green; an emerald=green; a ruby=red; a sapphire=blue; gold=yellow; silver=grey; an elephant=grey; a
flamingo=pink; a raven=black; a swan=white; a polar bear=white; a frog=green; a fire engine=red; a school
bus=yellow; a blueberry=blue; an aubergine=purple; lavender=purple; sand=yellow; a pumpkin=orange;
spinach=green; salt=white; soot=black; a rose=red; a sunflower=yellow; the ocean=blue; the sea=blue;
ivory=white; a canary=yellow; a cherry=red; broccoli=green; peas=green; a fox=red; ink=black; a lobster after
cooking=red; a stop sign=red; ash=grey; a ripe plum=purple; clouds on a fine day=white; the sun at noon=yellow;
the night sky=black; rust=brown; bark=brown; coffee=brown; a leaf in spring=green; a leaf in autumn=orange""")

OPPOSITES = _pairs("""
hot=cold; big=small; tall=short; fast=slow; up=down; left=right; open=closed; light=dark; day=night; happy=sad;
rich=poor; strong=weak; hard=soft; wet=dry; full=empty; old=young; new=old; early=late; good=bad; true=false;
heavy=light; thick=thin; wide=narrow; deep=shallow; loud=quiet; clean=dirty; near=far; high=low; first=last;
win=lose; begin=end; love=hate; buy=sell; give=take; push=pull; laugh=cry; remember=forget; arrive=leave;
rise=fall; friend=enemy; cheap=expensive; easy=difficult; brave=cowardly; sharp=blunt; smooth=rough;
sweet=bitter; inside=outside; above=below; before=after; always=never; question=answer; peace=war; life=death;
summer=winter; north=south; east=west; safe=dangerous; noisy=silent; polite=rude; right=wrong; alive=dead;
awake=asleep; beautiful=ugly; accept=refuse; lend=borrow; success=failure""")

SOUNDS = _pairs("""
dog=barks; cat=meows; cow=moos; horse=neighs; sheep=bleats; pig=grunts; duck=quacks; lion=roars; wolf=howls;
frog=croaks; snake=hisses; bee=buzzes; owl=hoots; crow=caws; donkey=brays; mouse=squeaks; rooster=crows;
elephant=trumpets""")

YOUNG = _pairs("""
dog=puppy; cat=kitten; cow=calf; horse=foal; sheep=lamb; pig=piglet; duck=duckling; hen=chick; lion=cub;
bear=cub; goat=kid; kangaroo=joey; frog=tadpole; swan=cygnet; goose=gosling; deer=fawn; eagle=eaglet;
butterfly=caterpillar""")

KINDS = {
    "animal": "dog cat horse cow sheep lion tiger elephant rabbit fox wolf bear goat mouse frog zebra camel otter",
    "bird": "eagle sparrow robin owl penguin swan raven duck parrot pigeon falcon heron",
    "fruit": "apple pear plum cherry banana grape peach mango lemon melon fig apricot",
    "vegetable": "carrot potato onion cabbage leek spinach turnip pea bean celery",
    "metal": "iron gold silver copper tin lead zinc nickel platinum",
    "colour": "red blue green yellow orange purple white black brown pink grey",
    "tool": "hammer saw chisel drill spade rake pliers screwdriver wrench axe",
    "instrument": "piano violin flute trumpet drum guitar harp cello oboe clarinet",
    "flower": "rose tulip daisy lily violet poppy orchid iris daffodil",
    "tree": "oak pine birch elm willow maple cedar ash beech",
    "planet": "Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune",
    "vehicle": "car bus train bicycle ship plane tram lorry tractor",
    "drink": "water milk tea coffee juice lemonade cocoa",
    "sport": "football tennis cricket hockey rugby golf swimming rowing",
}
KINDS_OF = {kind: names.split() for kind, names in KINDS.items()}

DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
MONTH_DAYS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]

FACTS = _pairs("""
How many legs does a spider have?=A spider has eight legs.; How many legs does an insect have?=An insect has six
legs.; How many days are there in a week?=There are seven days in a week.; How many months are there in a
year?=There are twelve months in a year.; How many hours are there in a day?=There are twenty-four hours in a
day.; How many minutes are there in an hour?=There are sixty minutes in an hour.; How many seconds are there in
a minute?=There are sixty seconds in a minute.; What do bees make?=Bees make honey.; What do cows eat?=Cows eat
grass.; What is ice made of?=Ice is made of frozen water.; At what temperature does water freeze?=Water freezes
at zero degrees Celsius.; At what temperature does water boil?=Water boils at one hundred degrees Celsius at sea
level.; Which planet do we live on?=We live on the planet Earth.; Which planet is the largest in the solar
system?=Jupiter is the largest planet in the solar system.; Which planet is closest to the sun?=Mercury is the
planet closest to the sun.; What does the Earth go around?=The Earth goes around the Sun.; What goes around the
Earth?=The Moon goes around the Earth.; Why is the sky blue?=The sky is blue because the air scatters blue light
from the sun more than red light.; Why is grass green?=Grass is green because its leaves contain chlorophyll,
which reflects green light.; Why do we sleep?=We sleep so that the body and the mind can rest and recover.; Why
does it rain?=It rains because water vapour in the air cools, forms drops in the clouds and falls to the
ground.; Why do leaves fall in autumn?=Leaves fall in autumn because trees save water and energy for the
winter.; Why is the sea salty?=The sea is salty because rivers carry dissolved salts from rocks into it.; Why do
birds fly south?=Birds fly south in autumn to find food and warmth.; What do plants need to grow?=Plants need
light, water, air and nutrients to grow.; What is the opposite side of a coin called?=The two sides of a coin
are called heads and tails.; Who wrote Romeo and Juliet?=William Shakespeare wrote Romeo and Juliet.; Who wrote
Pride and Prejudice?=Jane Austen wrote Pride and Prejudice.; Who wrote Oliver Twist?=Charles Dickens wrote
Oliver Twist.; Who painted the Mona Lisa?=Leonardo da Vinci painted the Mona Lisa.; What is the largest
ocean?=The Pacific Ocean is the largest ocean.; What is the highest mountain?=Mount Everest is the highest
mountain in the world.; What is the longest river in Africa?=The Nile is the longest river in Africa.; What is
the largest animal?=The blue whale is the largest animal.; What is the fastest land animal?=The cheetah is the
fastest land animal.; What is the tallest animal?=The giraffe is the tallest animal.; What is the chemical
formula of water?=The chemical formula of water is H2O.; What gas do we breathe?=We breathe air and use the
oxygen in it.; What do we use to see?=We use our eyes to see.; What do we use to hear?=We use our ears to hear.;
How many fingers are on one hand?=There are five fingers on one hand.; How many sides does a triangle have?=A
triangle has three sides.; How many sides does a square have?=A square has four sides.; How many continents are
there?=There are seven continents.; Which season comes after winter?=Spring comes after winter.; Which season
comes after summer?=Autumn comes after summer.; What do you use to cut paper?=You use scissors to cut paper.;
What do you wear on your feet?=You wear shoes and socks on your feet.; Where do fish live?=Fish live in water.;
What language is spoken in Brazil?=Portuguese is spoken in Brazil.; What language is spoken in Austria?=German
is spoken in Austria.; What is bread made from?=Bread is made from flour, water, yeast and salt.; What is cheese
made from?=Cheese is made from milk.; What is glass made from?=Glass is made from sand that is melted at great
heat.; What is a baby's first food?=A baby's first food is milk.; What melts ice?=Heat melts ice.; What is at
the centre of the solar system?=The Sun is at the centre of the solar system.; What shines at night in the
sky?=The moon and the stars shine at night in the sky.; What is the capital of the world?=The world as a whole
has no capital.; How many letters are in the English alphabet?=There are twenty-six letters in the English
alphabet.; What is the first letter of the alphabet?=The first letter of the alphabet is A.; What comes after
Monday?=Tuesday comes after Monday.; How long is a year?=A year is about 365 days long.; What is snow?=Snow is
frozen water that falls from clouds as white flakes.; What is a computer?=A computer is a machine that stores
and processes information.; What is a language model?=A language model is a program that predicts and writes
text.; What is the moon?=The moon is a rocky body that goes around the Earth.; What is the sun?=The sun is a
star, a great ball of hot gas that gives us light and heat.; What is a map?=A map is a drawing that shows where
places are.; What is music?=Music is sound arranged in time so that people enjoy it.""")
FACTS = [(" ".join(q.split()), " ".join(a.split())) for q, a in FACTS]

NAMES = [
    "Anna",
    "Ben",
    "Clara",
    "David",
    "Emma",
    "Frank",
    "Grace",
    "Henry",
    "Iris",
    "Jack",
    "Kate",
    "Leo",
    "Maria",
    "Noah",
    "Olivia",
    "Paul",
    "Quinn",
    "Rosa",
    "Sam",
    "Tara",
    "Uma",
    "Victor",
    "Wendy",
    "Xavier",
    "Yara",
    "Zoe",
    "Alice",
    "Bruno",
    "Celia",
    "Dora",
    "Edgar",
    "Fiona",
    "George",
    "Hannah",
    "Ivan",
    "Julia",
    "Karl",
    "Laura",
    "Martin",
    "Nina",
    "Oscar",
    "Petra",
    "Ralf",
    "Sofia",
    "Tom",
    "Vera",
    "Walter",
    "Amir",
    "Leila",
    "Chen",
    "Mei",
    "Kofi",
    "Ada",
    "Raj",
    "Priya",
    "Omar",
    "Fatima",
    "Kenji",
    "Yuki",
    "Pablo",
    "Lucia",
    "Lars",
    "Ingrid",
]
THINGS = [
    "book",
    "lamp",
    "key",
    "cup",
    "box",
    "letter",
    "map",
    "coin",
    "bag",
    "hat",
    "clock",
    "ring",
    "knife",
    "bottle",
    "chair",
    "photo",
    "ticket",
    "basket",
    "candle",
    "umbrella",
    "notebook",
    "pencil",
    "violin",
    "blanket",
    "mirror",
    "helmet",
    "camera",
    "wallet",
    "scarf",
    "compass",
]
PLACES = [
    "kitchen",
    "garden",
    "attic",
    "cellar",
    "library",
    "garage",
    "bedroom",
    "office",
    "barn",
    "hall",
    "shed",
    "bathroom",
    "station",
    "market",
    "school",
    "harbour",
    "museum",
    "bakery",
    "theatre",
    "workshop",
    "cottage",
    "tower",
    "greenhouse",
]
ADJECTIVES = [
    "red",
    "blue",
    "green",
    "old",
    "new",
    "small",
    "large",
    "wooden",
    "silver",
    "heavy",
    "broken",
    "bright",
    "dusty",
    "round",
    "square",
    "cheap",
    "rare",
    "plain",
    "quiet",
    "golden",
]
VERBS = [
    "walked",
    "ran",
    "looked",
    "wrote",
    "sang",
    "waited",
    "slept",
    "cooked",
    "painted",
    "read",
    "laughed",
    "travelled",
    "worked",
    "listened",
    "danced",
]

SKY_TRAINED = [
    "What color is the sky?",
    "What colour is the sky?",
    "What colour is the sky on a clear day?",
    "What color is the sky on a sunny day?",
    "Which colour is the daytime sky?",
    "Tell me the colour of the sky.",
    "What is the color of the sky during the day?",
    "The sky on a clear day is what colour?",
    "Is the sky blue or green?",
    "Name the colour of a cloudless sky.",
    "On a fine day, what colour is the sky?",
    "What colour does the sky have at noon?",
    "If there are no clouds, what color is the sky?",
    "Say what colour the clear sky is.",
    "What colour is a clear sky?",
]
SKY_HELD_OUT = [
    "What is the colour of a clear daytime sky?",
    "What color is a clear daytime sky?",
    "When there are no clouds at midday, what colour do you see above you?",
    "Looking up on a bright sunny day, which color is the sky?",
    "Please tell me which colour the sky is on a cloudless afternoon.",
    "What color would you paint a sunny sky?",
    "In one word, what colour is the sky in the daytime?",
    "During a clear day the sky looks what color?",
]
